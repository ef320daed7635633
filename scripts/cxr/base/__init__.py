"""The code that every stage uses: errors, jobs, files, tables, ledgers, vocabulary."""
