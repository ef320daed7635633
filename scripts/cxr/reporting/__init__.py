"""Present and publish the results: tables, figures, a page, expert review, and packages for release."""
