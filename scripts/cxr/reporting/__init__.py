"""What people look at: tables, figures, the page, comparisons, review and release."""
