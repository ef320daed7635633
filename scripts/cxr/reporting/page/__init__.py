"""The results on one page: pictures with reasons, numbers beside the paper's, and costs."""
