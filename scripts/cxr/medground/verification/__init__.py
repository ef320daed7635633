"""The stage medground_verification: checks of form and text, and a judge. Each rejected query has a reason."""
