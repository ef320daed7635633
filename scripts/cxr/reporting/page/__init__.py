"""The results as a paper shows them, on one page: pictures with reasons, numbers beside the paper's, costs."""
