"""The stage radvlm_conversations: facts of one image become turns of 5 to 10 rounds, standard and grounded."""
