"""Models on disk: their names, files and headers."""

from gptoss_local.base.formats.gguf_file import GGUFInfo, read_info, read_tokens
from gptoss_local.models.store.blobs import (
    BlobWriter,
    Leftover,
    add_blob,
    find_blob,
    find_garbage,
    known_sha256,
)
from gptoss_local.models.store.changes import (
    add_model,
    adopt_file,
    check_deletable,
    delete_model,
    look_at_file,
)
from gptoss_local.models.store.checks import check_adapter, check_usable, unusable_models
from gptoss_local.models.store.manifests import ModelDefaults, unreadable_manifests
from gptoss_local.models.store.models import (
    AS_JSON,
    ModelEntry,
    file_for,
    find_model,
    list_models,
    parameter_lines,
    render_modelfile,
)
