"""JSON schemas of answers: objects whose keys are all required, and the check of an answer."""


def object_of(**properties: dict) -> dict:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_of(longest: int) -> dict:
    """Return the schema of a text of 1 to ``longest`` characters; the limit stops a model that does not end."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def problem_of(answer: object, schema: dict) -> str | None:
    """Return what violates the schema, None if nothing does. It quotes no word of the answer: it may go to a log."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(answer), None)
    if error is None:
        return None
    return f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {error.validator}"
