#include "model/adapter.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "format/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_adapter_formats[] = {"diffusers", "peft", NULL};

/* clang-format off */
static const struct form {
    const char *stem, *before; /* "%s": the scope */
} forms[] = {
    [WEFT_ADAPTER_DIFFUSERS] = {"pytorch_lora_weights", "%s."},
    [WEFT_ADAPTER_PEFT]      = {"adapter_model",        "base_model.model."},
};
/* clang-format on */

typedef struct writing {
    const weft_adapter_file *file;
    const weft_adapter_pair *pair;
    int64_t count;
    weft_tensors_writer *writer;
} writing;

/* ---- settings ------------------------------------------------------------------------------- */

static bool is_of_all(const writing *w)
{
    for (int64_t i = 1; i < w->count; i++)
        if (w->pair[i].rank != w->pair[0].rank || w->pair[i].alpha != w->pair[0].alpha)
            return false;
    return true;
}

/* What PEFT calls a config; its keys begin with `before`. Where modules differ each has patterns of
 * its own, which say all. */
static json_t *settings(const writing *w, const char *before)
{
    char key[100];
    json_t *c = json_object(), *targets = json_array(), *ranks = json_object(),
           *alphas = json_object();
    const bool of_all = is_of_all(w);
    for (int64_t i = 0; i < w->count; i++) {
        json_array_append_new(targets, json_string(w->pair[i].module));
        if (!of_all) {
            json_object_set_new(ranks, w->pair[i].module, json_integer(w->pair[i].rank));
            json_object_set_new(alphas, w->pair[i].module, json_real(w->pair[i].alpha));
        }
    }
    const struct {
        const char *key;
        json_t *value;
    } all[] = {{"peft_type", json_string("LORA")},
               {"r", json_integer(w->pair[0].rank)},
               {"lora_alpha", json_real(w->pair[0].alpha)},
               {"lora_dropout", json_real(0)},
               {"bias", json_string("none")},
               {"use_rslora", json_false()},
               {"use_dora", json_false()},
               {"fan_in_fan_out", json_false()},
               {"target_modules", targets},
               {"rank_pattern", ranks},
               {"alpha_pattern", alphas}};
    for (int i = 0; i < WEFT_COUNT(all); i++) {
        snprintf(key, sizeof key, "%s%s", before, all[i].key);
        json_object_set_new(c, key, all[i].value);
    }
    return c;
}

static weft_status write_settings(const writing *w)
{
    char path[1100], before[100] = "";
    const bool inside = w->file->format == WEFT_ADAPTER_DIFFUSERS;
    if (inside)
        snprintf(before, sizeof before, "%s.", w->file->scope);
    json_t *c = settings(w, before);
    char *text = inside ? json_dumps(c, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    weft_status_code status = WEFT_OK;
    snprintf(path, sizeof path, "%s/adapter_config.json", w->file->folder);
    if (!c || (inside && !text))
        status = weft_fail(WEFT_E_MEMORY, "%s: out of memory", w->file->folder);
    else
        status = inside ? weft_tensors_writer_metadata(w->writer, "lora_adapter_metadata", text)
                        : weft_json_save(path, c);
    free(text);
    json_decref(c);
    return status;
}

/* ---- tensors -------------------------------------------------------------------------------- */

/* Of `pair` the matrix A or B. */
static weft_status put(const writing *w, const weft_adapter_pair *pair, bool up, bool declares)
{
    char before[100], name[700];
    const int64_t dim[2] = {up ? pair->rows : pair->rank, up ? pair->rank : pair->columns};
    snprintf(before, sizeof before, forms[w->file->format].before, w->file->scope);
    snprintf(name, sizeof name, "%s%s.lora_%c.weight", before, pair->module, up ? 'B' : 'A');
    return declares
               ? weft_tensors_writer_declare(w->writer, name, w->file->dtype, 2, dim)
               : weft_tensors_writer_data(w->writer, name, WEFT_F32, up ? pair->up : pair->down);
}

weft_status weft_adapter_write(const weft_adapter_file *file, const weft_adapter_pair *pair,
                               int64_t count)
{
    writing w = {.file = file, .pair = pair, .count = count};
    weft_status_code status = WEFT_OK;
    if (count == 0)
        return weft_fail(WEFT_E_ARG, "%s: an adapter of nothing", file->folder);
    WEFT_GO(weft_tensors_writer_create(file->folder, forms[file->format].stem, 0, &w.writer));
    WEFT_GO(write_settings(&w));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < 2 * count; i++)
            WEFT_GO(put(&w, &pair[i / 2], i % 2, pass == 0));
    WEFT_GO(weft_tensors_writer_finish(w.writer));
out:
    weft_tensors_writer_free(w.writer);
    return status;
}
