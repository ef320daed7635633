"""The forecast of a run: what goes in, what each system makes of it, what that costs, and what would be refused."""
