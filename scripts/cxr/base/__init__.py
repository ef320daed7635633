"""The ground floor every stage stands on: names, settings, geometry, files, bookkeeping."""
