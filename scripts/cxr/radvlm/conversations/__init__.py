"""The stage radvlm_conversations: writes standard and grounded conversations of 5 to 10 rounds about one image."""
