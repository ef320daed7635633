"""A language model by its transport: on a server, or loaded in the job."""

from cxr.llm.asking import Generate
from cxr.llm.offline import connect as connect_offline
from cxr.llm.options import Execution, ModelOptions
from cxr.llm.server import connect as connect_server


def connect(options: ModelOptions, execution: Execution) -> Generate:
    """Return the function that asks the model. Raises UserError if it cannot be reached."""
    if options.transport == "server":
        return connect_server(options, execution)
    return connect_offline(options, execution)
