"""The stage privacy: what was removed from texts and images, counted."""
