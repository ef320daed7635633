"""The stage medground_verification: checks of the form and the text, and a judge; a reason for each rejected query."""
