"""How the tests ask a model."""

from cxr.ils.inference.asker import InferenceOptions
from tiny_rosalia import TARGET

OPTIONS = InferenceOptions(
    conversation="llava_v1", max_length=512, fit="pad", published_mismatch=False, text=True, max_new_tokens=24,
    equalise=True, size=TARGET, dtype="float32",
)  # fmt: skip
