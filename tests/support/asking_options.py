"""How the tests ask a model."""

from cxr.ils.inference.settings import InferenceOptions
from tiny_rosalia import TARGET

OPTIONS = InferenceOptions(max_new_tokens=24, size=TARGET)
