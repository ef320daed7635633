"""Remove identifiers of people from report text: names, numbers, dates, signatures; also remove markup."""
