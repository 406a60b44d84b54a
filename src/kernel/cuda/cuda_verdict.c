#include "kernel/cuda/cuda_verdict.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/memory.h"
#include "kernel/cuda/cuda_module.h"

#include <stdlib.h>
#include <string.h>

static struct {
    uint8_t verdict[2][WEFT_OP_COUNT]; /* f32, bf16 */
    bool bf16;                         /* of the programs */
} state;

static const char *const precisions[] = {"f32", "bf16"};
static const char *const words[] = {"none", "passed", "failed"};

/* ---- the table ------------------------------------------------------------------------------- */

void weft_cuda_verdicts_forget(void)
{
    memset(&state, 0, sizeof state);
}

void weft_cuda_verdict_set(bool bf16, weft_op op, weft_verdict verdict)
{
    state.verdict[bf16][op] = (uint8_t)verdict;
}

weft_verdict weft_cuda_verdict_get(bool bf16, weft_op op)
{
    return (weft_verdict)state.verdict[bf16][op];
}

void weft_cuda_verdicts_use(bool bf16)
{
    state.bf16 = bf16;
}

weft_status weft_cuda_verdict_check(weft_op op)
{
    const weft_cuda_gpu *gpu;
    if (state.verdict[state.bf16][op] != WEFT_VERDICT_FAILED)
        return WEFT_OK;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    return weft_error(WEFT_MSG_PARITY_FAILED,
                      WEFT_AT(.key = weft_op_get(op)->name, .value = gpu->name),
                      "the kernel of %s in %s differs from the reference on %s, and no other "
                      "implementation is left. Run weft doctor --gpu for details, and use backend "
                      "cpu.",
                      weft_op_get(op)->name, precisions[state.bf16], gpu->name);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A hash of the embedded kernels. */
static uint64_t kernels_hash(void)
{
    uint64_t hash = 0xcbf29ce484222325;
    for (const weft_cuda_image *image = weft_cuda_images; image->name; image++)
        for (const unsigned char *p = image->text; *p; p++)
            hash = (hash ^ *p) * 0x100000001b3;
    return hash;
}

/* The GPU, driver, weft and kernels of the verdicts. NULL: out of memory. */
static json_t *key_of(const weft_cuda_gpu *gpu)
{
    char kernels[20];
    snprintf(kernels, sizeof kernels, "%016" PRIx64, kernels_hash());
    return json_pack("{s:s, s:i, s:i, s:i, s:s, s:s}", "gpu", gpu->name, "major", gpu->major,
                     "minor", gpu->minor, "cuda", gpu->version, "weft", WEFT_VERSION, "kernels",
                     kernels);
}

static weft_status folder_of(weft_buf *path)
{
    const char *named = getenv("WEFT_GPU_VERDICTS"), *base = getenv("XDG_CACHE_HOME"),
               *home = getenv("HOME");
    if (named && *named)
        weft_buf_printf(path, "%s", named);
    else if (base && *base)
        weft_buf_printf(path, "%s/weft/gpu", base);
    else
        weft_buf_printf(path, "%s/.cache/weft/gpu", home ? home : "");
    return weft_buf_check(path);
}

weft_status weft_cuda_verdicts_path(char **out)
{
    const weft_cuda_gpu *gpu;
    weft_buf path = {0};
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    json_t *key = key_of(gpu);
    char *line = key ? weft_json_line(key) : NULL;
    uint64_t hash = 0xcbf29ce484222325;
    json_decref(key);
    WEFT_TRY(WEFT_ALLOCATED(line, "the verdicts of kernels"));
    for (const char *p = line; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3;
    weft_free(line);
    WEFT_TRY(folder_of(&path));
    weft_buf_printf(&path, "/%016" PRIx64 ".json", hash);
    const weft_status_code status = weft_buf_check(&path);
    *out = path.data;
    return status;
}

static void read_ops(const json_t *file, bool bf16, bool *found)
{
    const json_t *ops = json_object_get(json_object_get(file, "ops"), precisions[bf16]);
    *found = json_object_size(ops) > 0;
    for (int op = 0; op < WEFT_OP_COUNT; op++) {
        const char *word = json_string_value(json_object_get(ops, weft_op_get((weft_op)op)->name));
        for (int v = 0; v <= WEFT_VERDICT_FAILED; v++)
            if (word && !strcmp(word, words[v]))
                state.verdict[bf16][op] = (uint8_t)v;
    }
}

weft_status weft_cuda_verdicts_load(bool bf16, bool *found)
{
    char *path;
    const weft_cuda_gpu *gpu;
    json_t *file = NULL;
    bool has[2] = {false};
    *found = false;
    weft_cuda_verdicts_forget();
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    WEFT_TRY(weft_cuda_verdicts_path(&path));
    json_t *key = key_of(gpu);
    const bool usable = key && weft_path_exists(path) && weft_json_load(path, &file) == WEFT_OK &&
                        json_equal(json_object_get(file, "of"), key);
    for (int p = 0; p < 2 && usable; p++)
        read_ops(file, p, &has[p]);
    *found = has[bf16];
    json_decref(file);
    json_decref(key);
    weft_free(path);
    return WEFT_OK;
}

static json_t *ops_json(bool bf16)
{
    json_t *ops = json_object();
    for (int op = 0; op < WEFT_OP_COUNT && ops; op++)
        if (state.verdict[bf16][op])
            json_object_set_new(ops, weft_op_get((weft_op)op)->name,
                                json_string(words[state.verdict[bf16][op]]));
    return ops;
}

weft_status weft_cuda_verdicts_save(void)
{
    char *path;
    weft_buf folder = {0};
    const weft_cuda_gpu *gpu;
    WEFT_TRY(weft_cuda_gpu_get(&gpu));
    WEFT_TRY(weft_cuda_verdicts_path(&path));
    json_t *file = json_pack("{s:o, s:{s:o, s:o}}", "of", key_of(gpu), "ops", precisions[0],
                             ops_json(false), precisions[1], ops_json(true));
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(file, "the verdicts of kernels"));
    WEFT_GO(folder_of(&folder));
    WEFT_GO(weft_make_dirs(folder.data));
    WEFT_GO(weft_json_save(path, file));
out:
    json_decref(file);
    weft_buf_free(&folder);
    weft_free(path);
    return status;
}
