"""What a query may say: atoms with three values, and which queries are decidable (medground.md section 5)."""
