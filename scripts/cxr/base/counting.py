"""Numbers in sentences for people: one image file *is*, two image files *are*."""


def counted(number: int, one: str, many: str) -> str:
    """Return the number before the words that agree with it: "1 image file is", "2 image files are"."""
    return f"{number} {one if number == 1 else many}"
