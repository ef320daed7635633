"""Present and publish the results: tables, figures, the page, comparisons, review and release."""
