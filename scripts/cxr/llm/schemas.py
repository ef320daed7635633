"""JSON schemas of answers: objects of which every key is required, and what breaks one."""


def object_of(**properties: dict) -> dict:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def text_of(longest: int) -> dict:
    """Return the schema of a text that is not empty, of so many characters: a model that runs on stops inside it."""
    return {"type": "string", "minLength": 1, "maxLength": longest}


def problem_of(answer: object, schema: dict) -> str | None:
    """Return what breaks the schema, None if nothing does. No word of the answer is repeated: it may go to a log."""
    import jsonschema

    error = next(jsonschema.Draft202012Validator(schema).iter_errors(answer), None)
    if error is None:
        return None
    return f"{'.'.join(map(str, error.absolute_path)) or 'answer'}: {error.validator}"
