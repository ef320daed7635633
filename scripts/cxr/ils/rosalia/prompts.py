"""Write the prompt of an instruction as in LISA, and extract the answer from generated text."""

SEG = "[SEG]"
"""The token that requests a mask."""
IMAGE_START, IMAGE, IMAGE_END = "<im_start>", "<image>", "<im_end>"
END = "</s>"
CONVERSATIONS = ("llava_v1", "llava_llama_2")
"""Names of LISA's two conversation templates."""
ANSWER_AFTER = {"llava_v1": "ASSISTANT:", "llava_llama_2": "[/INST]"}
"""The text right before an answer; a prompt without an answer ends with it, without a space."""
SYSTEMS = {
    "llava_v1": (
        "A chat between a curious human and an artificial intelligence assistant. "
        "The assistant gives helpful, detailed, and polite answers to the human's questions."
    ),
    "llava_llama_2": (
        "You are a helpful language and vision assistant. "
        "You are able to understand the visual content that the user provides, "
        "and assist the user with a variety of tasks using natural language."
    ),
}


def write_prompt(instruction: str, answer: str | None, conversation: str) -> str:
    """Return the text of one exchange; if ``answer`` is None it ends where the answer begins.

    The instruction is inserted verbatim (authors' code). Raises ValueError for an unknown conversation.
    """
    user_message = f"{IMAGE_START}{IMAGE}{IMAGE_END}\n{instruction}"
    if conversation == "llava_v1":
        text = f"{SYSTEMS[conversation]} USER: {user_message} ASSISTANT:"
        return text if answer is None else f"{text} {answer}{END}"
    if conversation == "llava_llama_2":
        text = f"[INST] <<SYS>>\n{SYSTEMS[conversation]}\n<</SYS>>\n\n{user_message} [/INST]"
        return text if answer is None else f"{text} {answer} {END}"
    raise ValueError(f"conversation must be one of {', '.join(CONVERSATIONS)}, not {conversation!r}")


def extract_answer(text: str) -> str:
    """Return the answer in a decoded exchange or its continuation, cleaned as in LISA's evaluation."""
    plain = text.replace("\n", "").replace("  ", " ")
    for mark in ANSWER_AFTER.values():
        plain = plain.rpartition(mark)[2]
    return plain.partition(END)[0].strip()
