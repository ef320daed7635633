"""The ground floor every stage stands on: errors, jobs, files, tables, ledgers, names."""
