"""Code that every stage uses: errors, jobs, files, tables, settings, lists of excluded images, and the vocabulary."""
