"""The stage medground_verification: form, rules that read the text, and a judge; one reasoned row a reject."""
