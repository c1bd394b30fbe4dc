"""A libllama that fails as a GPU does: before the real one, with a `llama_decode` of its own.

A fault is armed by a file with a kind, the number of the call that fails, and how often:

    abort 3 1     ggml aborts the process in the third call, once
    fail 1 2      the device fails, twice
    full 1 1      the device has no memory left
    hang 5 1      the call never returns
"""

import shutil
import subprocess
from pathlib import Path

import llama_cpp

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct batch { int n_tokens; void *token, *embd, *pos, *n_seq_id, *seq_id, *logits; };
extern void ggml_abort(const char *file, int line, const char *format, ...);

static int fault(const char *path) {
    char kind[16] = "";
    int call = 0, times = 0;
    static int n_calls = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    int n_read = fscanf(file, "%15s %d %d", kind, &call, &times);
    fclose(file);
    if (n_read != 3 || ++n_calls < call) return 0;
    if (times <= 1) unlink(path);
    else if ((file = fopen(path, "w"))) {
        fprintf(file, "%s %d %d", kind, call, times - 1);
        fclose(file);
    }
    n_calls = 0;
    if (!strcmp(kind, "abort"))
        ggml_abort("ggml-cuda.cu", 102, "CUDA error: an illegal memory access was encountered");
    while (!strcmp(kind, "hang")) sleep(1);
    return strcmp(kind, "full") ? -3 : -2;
}

int llama_decode(void *context, struct batch batch) {
    int status = fault(getenv("FAULT_FILE"));
    int (*decode)(void *, struct batch) = dlsym(RTLD_NEXT, "llama_decode");
    return status ? status : decode(context, batch);
}
"""


def build(folder: Path) -> dict[str, str]:
    """Build it, and return the variables that make a server's engines load it."""
    real = Path(llama_cpp.__file__).parent / "lib"
    compiler = shutil.which("gcc") or "cc"
    (folder / "faulty.c").write_text(SOURCE)
    flags = ["-shared", "-fPIC", "-Wl,--no-as-needed", f"-Wl,-rpath,{real}"]
    files = [folder / "faulty.c", real / "libllama.so", real / "libggml-base.so"]
    output = folder / "libllama.so"
    subprocess.run([compiler, *flags, "-o", output, *files, "-ldl"], check=True)
    return {"LLAMA_CPP_LIB_PATH": str(folder), "FAULT_FILE": str(folder / "fault")}
