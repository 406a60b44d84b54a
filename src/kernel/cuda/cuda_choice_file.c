#include "kernel/cuda/cuda_choice_file.h"

#include "base/memory.h"
#include "kernel/cuda/cuda_verdict.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* The lines that were read. Another process may have added lines if the file is longer. */
static struct {
    char *path;      /* NULL: none were read */
    int64_t bytes;   /* of the file when it was read */
    json_t *choices; /* by key */
    bool is_torn;    /* a line is damaged: the next choice writes the file from scratch */
} state;

void weft_cuda_choice_file_forget(void)
{
    json_decref(state.choices);
    state.choices = NULL;
    weft_free(state.path);
    state.path = NULL;
    state.bytes = 0;
}

/* Bytes of the file; 0: it does not exist. */
static int64_t size_of(const char *path)
{
    struct stat file;
    return stat(path, &file) == 0 ? (int64_t)file.st_size : 0;
}

static weft_status_code keep(void *user, json_t *choice)
{
    const char *key = json_string_value(json_object_get(choice, "key"));
    (void)user;
    if (key && json_object_set(state.choices, key, choice))
        return weft_no_memory("the choices of kernels");
    return WEFT_OK;
}

/* Whether the last line of the file has its end: a kill or a full disk may have truncated it. */
static bool has_end(const char *path)
{
    FILE *file = fopen(path, "r");
    const bool ends = file && fseek(file, -1, SEEK_END) == 0 && fgetc(file) == '\n';
    if (file)
        fclose(file);
    return ends;
}

/* Reads the file of this GPU and these libraries, if it changed. */
static weft_status refresh(void)
{
    char *path;
    WEFT_TRY(weft_cuda_verdicts_path("-choices.jsonl", &path));
    const int64_t bytes = size_of(path);
    if (state.path && !strcmp(state.path, path) && state.bytes == bytes) {
        weft_free(path);
        return WEFT_OK;
    }
    weft_cuda_choice_file_forget();
    state.path = path;
    state.bytes = bytes;
    state.choices = json_object();
    WEFT_TRY(WEFT_ALLOCATED(state.choices, "the choices of kernels"));
    state.is_torn = bytes && (weft_json_log_lines(path, keep, NULL) != WEFT_OK || !has_end(path));
    if (state.is_torn)
        weft_error_clear();
    return WEFT_OK;
}

weft_status weft_cuda_choice_file_find(const char *key, const json_t **stored)
{
    WEFT_TRY(refresh());
    *stored = json_object_get(state.choices, key);
    return WEFT_OK;
}

weft_status weft_cuda_choice_file_all(json_t **choices)
{
    WEFT_TRY(refresh());
    *choices = state.choices;
    return WEFT_OK;
}

static bool put_line(FILE *file, const json_t *choice)
{
    char *line = weft_json_line(choice);
    const bool written = line && fprintf(file, "%s\n", line) > 0;
    weft_free(line);
    return written;
}

static weft_status append(const json_t *choice)
{
    const char *key;
    json_t *other;
    FILE *file = fopen(state.path, state.is_torn ? "w" : "a");
    bool written = file != NULL;
    json_object_foreach(state.choices, key, other)
    {
        written = written && (!state.is_torn || put_line(file, other));
    }
    written = written && put_line(file, choice);
    if ((file && fclose(file) != 0) || !written) /* a full disk is seen by fclose() */
        return weft_error_errno(WEFT_AT(.file = state.path), "the choices of kernels");
    state.is_torn = false;
    return WEFT_OK;
}

weft_status weft_cuda_choice_file_add(json_t *choice)
{
    weft_status_code status = WEFT_OK;
    WEFT_GO(refresh());
    WEFT_GO(append(choice));
    WEFT_GO(keep(NULL, choice));
    state.bytes = size_of(state.path);
out:
    json_decref(choice);
    return status;
}
