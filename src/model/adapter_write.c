#include "model/adapter_write.h"

#include "model/adapter.h"

#include "base/config.h"
#include "base/fs.h"
#include "base/json.h"
#include "format/tensors/safetensors.h"
#include "format/tensors/safetensors_write.h"
#include "graph/graph.h"
#include "model/adapter_names.h"
#include "model/key_mapping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const weft_adapter_formats[] = {"diffusers", "peft",    "kohya",
                                            "comfyui",   "longcat", NULL};

/* clang-format off */
static const struct form {
    const char *stem, *before; /* "%s": the scope */
    const char *down, *up;
    bool original; /* uses the names of the family's original files */
    const char *dot;   /* replaces '.' */
    const char *scale; /* the name of alpha, or of alpha / rank (`shares`) */
    bool shares;
    bool blocks; /* all modules, or their blocks, have the same rank */
} forms[] = {
    [WEFT_ADAPTER_DIFFUSERS] = {"pytorch_lora_weights", "%s.", ".lora_A.weight", ".lora_B.weight"},
    [WEFT_ADAPTER_PEFT]      = {"adapter_model", "base_model.model.",
                                ".lora_A.weight", ".lora_B.weight"},
    [WEFT_ADAPTER_KOHYA]     = {"pytorch_lora_weights", "lora_unet_",
                                ".lora_down.weight", ".lora_up.weight", true, "_", ".alpha"},
    [WEFT_ADAPTER_COMFYUI]   = {"pytorch_lora_weights", "diffusion_model.",
                                ".lora_A.weight", ".lora_B.weight", true, ".", ".alpha"},
    [WEFT_ADAPTER_LONGCAT]   = {"pytorch_lora_weights", "lora" WEFT_ADAPTER_MARK,
                                ".lora_down.weight", ".lora_up.weight", true, WEFT_ADAPTER_MARK,
                                ".alpha_scale", true, true},
};
/* clang-format on */

typedef struct writing {
    const weft_adapter_file *file;
    const struct form *form;
    const weft_adapter_pair *pair; /* pairs of the model */
    int64_t count;
    /* Modules of the file. A matrix that differs from that of a pair is allocated. */
    weft_adapter_pair *made;
    int64_t mades;
    weft_tensors_writer *writer;
} writing;

static weft_status no_memory(const writing *w)
{
    return weft_no_memory("%s", w->file->folder);
}

/* ---- the file's modules ---------------------------------------------------------------------- */

static const weft_adapter_pair *pair_of(const writing *w, const char *weight)
{
    const size_t length = strlen(weight) - strlen(".weight");
    for (int64_t i = 0; i < w->count; i++)
        if (strlen(w->pair[i].module) == length && !strncmp(w->pair[i].module, weight, length))
            return &w->pair[i];
    return NULL;
}

static int64_t rows_of(const writing *w, const char *weight)
{
    char full[600];
    snprintf(full, sizeof full, "%s.%s", w->file->scope, weight);
    const weft_value v = weft_graph_find(w->file->graph, full);
    return weft_value_ok(v) ? weft_value_get(w->file->graph, v)->shape.dim[0] : 0;
}

static double scale_of(const weft_adapter_pair *p)
{
    return p->alpha / (double)p->rank;
}

static bool same_down(const weft_adapter_pair *a, const weft_adapter_pair *b)
{
    return b && a->rank == b->rank && a->columns == b->columns && a->alpha == b->alpha &&
           !memcmp(a->down, b->down, (size_t)(a->rank * a->columns) * sizeof *a->down);
}

/* Allocates the matrices of `m`, whose sizes are set. */
static weft_status allocate(const writing *w, weft_adapter_pair *m)
{
    m->down = weft_alloc(m->rank * m->columns * (int64_t)sizeof *m->down + 1);
    m->up = weft_alloc(m->rows * m->rank * (int64_t)sizeof *m->up + 1);
    return WEFT_ALLOCATED(m->down && m->up, "%s", w->file->folder);
}

/* Copies one part to *m: B from row `row` on, A from rank `from` on. */
static void put_part(weft_adapter_pair *m, const weft_adapter_pair *p, int64_t row, int64_t from)
{
    const double by = scale_of(p) / scale_of(m);
    memcpy(m->down + from * m->columns, p->down, (size_t)(p->rank * p->columns) * sizeof *p->down);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t k = 0; k < p->rank; k++)
            m->up[(row + r) * m->rank + from + k] = (float)(by * (double)p->up[r * p->rank + k]);
}

/* Fuses several modules of the model into one. Parts without a pair add nothing. */
static weft_status fuse(const writing *w, const weft_foreign_tensor *t, weft_adapter_pair *m)
{
    const weft_adapter_pair *part[WEFT_KEY_MAPPING_PARTS], *first = NULL;
    int64_t rows[WEFT_KEY_MAPPING_PARTS], rank = 0, row = 0, from = 0;
    bool same = true;
    for (int i = 0; i < t->parts; i++) {
        part[i] = pair_of(w, t->part[i]);
        rows[i] = rows_of(w, t->part[i]);
        first = first ? first : part[i];
        rank += part[i] ? part[i]->rank : 0;
        m->rows += rows[i];
    }
    for (int i = 0; i < t->parts && same; i++)
        same = same_down(first, part[i]);
    m->columns = first->columns;
    m->rank = same ? first->rank : rank;
    m->alpha = scale_of(first) * (double)m->rank;
    WEFT_TRY(allocate(w, m));
    for (int i = 0; i < t->parts; row += rows[i++])
        if (part[i]) {
            put_part(m, part[i], row, same ? 0 : from);
            from += part[i]->rank;
        }
    return WEFT_OK;
}

/* Swaps the halves of the rows. */
static weft_status swap_halves(const writing *w, const weft_adapter_pair *p, weft_adapter_pair *m)
{
    const int64_t half = p->rows / 2 * p->rank;
    *m = (weft_adapter_pair){
        .rank = p->rank, .rows = p->rows, .columns = p->columns, .alpha = p->alpha};
    WEFT_TRY(allocate(w, m));
    memcpy(m->down, p->down, (size_t)(p->rank * p->columns) * sizeof *p->down);
    memcpy(m->up, p->up + half, (size_t)half * sizeof *p->up);
    memcpy(m->up + half, p->up, (size_t)half * sizeof *p->up);
    return WEFT_OK;
}

static bool is_made(const writing *w, const char *module)
{
    for (int64_t i = 0; i < w->mades; i++)
        if (!strcmp(w->made[i].module, module))
            return true;
    return false;
}

static weft_status make(writing *w, const weft_adapter_pair *p, const weft_key_mapping *d)
{
    char weight[600], scope[100];
    weft_foreign_tensor t = {.parts = 1};
    weft_adapter_pair *m = &w->made[w->mades];
    snprintf(weight, sizeof weight, "%s.weight", p->module);
    snprintf(scope, sizeof scope, "%s.", w->file->scope);
    snprintf(t.name, sizeof t.name, "%.299s", weight);
    if (d && !weft_key_mapping_foreign(d, w->file->graph, scope, weight, &t))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = w->file->folder, .key = p->module),
                          "the %s names have no name for this module", d->name);
    t.name[strlen(t.name) - strlen(".weight")] = '\0';
    if (is_made(w, t.name))
        return WEFT_OK;
    if (t.copies)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = w->file->folder, .key = p->module),
                          "the authors' model has one layer, \"%s\", for this module and another "
                          "one; use the format diffusers",
                          t.name);
    w->mades++;
    weft_status_code status = WEFT_OK;
    if (t.parts > 1)
        status = fuse(w, &t, m);
    else if (t.turned)
        status = swap_halves(w, p, m);
    else
        *m = *p;
    snprintf(m->module, sizeof m->module, "%s", t.name);
    return status;
}

static weft_status make_all(writing *w)
{
    char scope[100];
    const weft_key_mapping *d = NULL;
    WEFT_TRY(WEFT_NEW(w->made, w->count + 1, "%s", w->file->folder));
    snprintf(scope, sizeof scope, "%s.", w->file->scope);
    if (w->form->original)
        d = weft_key_mapping_named(w->file->family, w->file->graph, scope, "original");
    if (d && d->no_adapters)
        d = NULL;
    for (int64_t i = 0; i < w->count; i++)
        WEFT_TRY(make(w, &w->pair[i], d));
    return WEFT_OK;
}

static void free_made(const writing *w)
{
    for (int64_t i = 0; i < w->mades && w->made; i++) {
        bool own = true;
        for (int64_t k = 0; k < w->count && own; k++)
            own = w->made[i].down != w->pair[k].down;
        weft_free(own ? w->made[i].down : NULL);
        weft_free(own ? w->made[i].up : NULL);
    }
    weft_free(w->made);
}

/* ---- settings ------------------------------------------------------------------------------- */

static bool is_of_all(const writing *w)
{
    for (int64_t i = 1; i < w->mades; i++)
        if (w->made[i].rank != w->made[0].rank || w->made[i].alpha != w->made[0].alpha)
            return false;
    return true;
}

/* Returns the PEFT config. Keys begin with `before`. If modules differ, each module has its own
 * complete patterns. */
static json_t *settings(const writing *w, const char *before)
{
    char key[100];
    json_t *c = json_object(), *targets = json_array(), *ranks = json_object(),
           *alphas = json_object();
    const bool of_all = is_of_all(w);
    for (int64_t i = 0; i < w->mades; i++) {
        json_array_append_new(targets, json_string(w->made[i].module));
        if (!of_all) {
            json_object_set_new(ranks, w->made[i].module, json_integer(w->made[i].rank));
            json_object_set_new(alphas, w->made[i].module, json_real(w->made[i].alpha));
        }
    }
    const struct {
        const char *key;
        json_t *value;
    } all[] = {{"peft_type", json_string("LORA")},
               {"r", json_integer(w->made[0].rank)},
               {"lora_alpha", json_real(w->made[0].alpha)},
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

static weft_status write_header(const writing *w)
{
    char before[100];
    snprintf(before, sizeof before, "%s.", w->file->scope);
    json_t *c = settings(w, before);
    char *text = c ? json_dumps(c, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    const weft_status_code status =
        text ? weft_tensors_writer_metadata(w->writer, "lora_adapter_metadata", text)
             : no_memory(w);
    free(text);
    json_decref(c);
    return status;
}

static weft_status write_config(const writing *w)
{
    char path[1100];
    json_t *c = settings(w, "");
    snprintf(path, sizeof path, "%s/adapter_config.json", w->file->folder);
    const weft_status_code status = c ? weft_json_save(path, c) : no_memory(w);
    json_decref(c);
    return status;
}

/* Writes the network metadata of kohya's trainers. */
static weft_status write_network(const writing *w)
{
    char rank[32], alpha[32];
    snprintf(rank, sizeof rank, "%" PRId64, w->pair[0].rank);
    snprintf(alpha, sizeof alpha, "%.9g", w->pair[0].alpha);
    WEFT_TRY(weft_tensors_writer_metadata(w->writer, "ss_network_module", "networks.lora"));
    WEFT_TRY(weft_tensors_writer_metadata(w->writer, "ss_network_dim", rank));
    return weft_tensors_writer_metadata(w->writer, "ss_network_alpha", alpha);
}

static weft_status write_settings(const writing *w)
{
    WEFT_TRY(weft_adapter_settings_write(&w->file->settings, w->writer));
    switch (w->file->format) {
    case WEFT_ADAPTER_DIFFUSERS: return write_header(w);
    case WEFT_ADAPTER_PEFT: return write_config(w);
    case WEFT_ADAPTER_KOHYA: return write_network(w);
    case WEFT_ADAPTER_COMFYUI:
    case WEFT_ADAPTER_LONGCAT: break;
    }
    return WEFT_OK;
}

/* ---- tensors -------------------------------------------------------------------------------- */

typedef enum part { DOWN, UP, ALPHA, PARTS } part;

static int64_t least_rank(const writing *w)
{
    int64_t least = w->made[0].rank;
    for (int64_t i = 1; i < w->mades; i++)
        least = w->made[i].rank < least ? w->made[i].rank : least;
    return least;
}

/* Whether B has `blocks` blocks of rows and ranks on its diagonal, and zeros elsewhere. */
static bool is_diagonal(const weft_adapter_pair *m, int64_t blocks)
{
    const int64_t rows = m->rows / blocks, rank = m->rank / blocks;
    if (m->rows % blocks || m->rank % blocks || blocks > WEFT_ADAPTER_PARTS)
        return false;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->rank; k++)
            if (r / rows != k / rank && m->up[r * m->rank + k] != 0)
                return false;
    return true;
}

/* The blocks in which B is written. 1: it is whole. */
static weft_status count_blocks(const writing *w, const weft_adapter_pair *m, int64_t *blocks)
{
    const int64_t rank = w->form->blocks ? least_rank(w) : m->rank;
    *blocks = m->rank / rank;
    if (m->rank % rank == 0 && is_diagonal(m, *blocks))
        return WEFT_OK;
    return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                      WEFT_AT(.file = w->file->folder, .key = m->module),
                      "the rank is %" PRId64 ", and other modules have %" PRId64
                      ". This format has one rank for all modules. Use --lora-format diffusers.",
                      m->rank, rank);
}

/* Writes or declares the tensor `end` of the module. */
static weft_status put_tensor(const writing *w, const weft_adapter_pair *m, const char *end,
                              bool declares, const int64_t dim[2], const float *data)
{
    char name[1100];
    snprintf(name, sizeof name, w->form->before, w->file->scope);
    size_t used = strlen(name);
    for (const char *at = m->module; *at && used + 32 < sizeof name; at++)
        used += (size_t)snprintf(name + used, sizeof name - used, "%.*s",
                                 *at == '.' && w->form->dot ? 32 : 1,
                                 *at == '.' && w->form->dot ? w->form->dot : at);
    snprintf(name + used, sizeof name - used, "%s", end);
    return !declares ? weft_tensors_writer_data(w->writer, name, WEFT_F32, data)
           : !dim    ? weft_tensors_writer_declare(w->writer, name, WEFT_F32, 0, NULL)
                     : weft_tensors_writer_declare(w->writer, name, w->file->dtype, 2, dim);
}

static weft_status put_blocks(const writing *w, const weft_adapter_pair *m, int64_t blocks,
                              bool declares)
{
    const int64_t dim[2] = {m->rows / blocks, m->rank / blocks};
    char end[64];
    float *data;
    WEFT_TRY(WEFT_NEW(data, dim[0] * dim[1], "%s", w->file->folder));
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < blocks; i++) {
        for (int64_t r = 0; r < dim[0]; r++)
            memcpy(data + r * dim[1], m->up + (i * dim[0] + r) * m->rank + i * dim[1],
                   (size_t)dim[1] * sizeof *data);
        snprintf(end, sizeof end, ".lora_up.blocks.%" PRId64 ".weight", i);
        WEFT_GO(put_tensor(w, m, end, declares, dim, data));
    }
out:
    weft_free(data);
    return status;
}

static weft_status put(const writing *w, const weft_adapter_pair *m, part which, bool declares)
{
    const int64_t down[2] = {m->rank, m->columns}, up[2] = {m->rows, m->rank};
    const float alpha = (float)(w->form->shares ? scale_of(m) : m->alpha);
    int64_t blocks;
    WEFT_TRY(count_blocks(w, m, &blocks));
    switch (which) {
    case DOWN: return put_tensor(w, m, w->form->down, declares, down, m->down);
    case UP:
        return blocks > 1 ? put_blocks(w, m, blocks, declares)
                          : put_tensor(w, m, w->form->up, declares, up, m->up);
    default: return put_tensor(w, m, w->form->scale, declares, NULL, &alpha);
    }
}

weft_status weft_adapter_write(const weft_adapter_file *file, const weft_adapter_pair *pair,
                               int64_t count)
{
    writing w = {.file = file, .form = &forms[file->format], .pair = pair, .count = count};
    const int parts = w.form->original ? PARTS : ALPHA;
    weft_status_code status = WEFT_OK;
    if (count == 0)
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = file->folder),
                          "the adapter has no matrices to write");
    WEFT_GO(make_all(&w));
    WEFT_GO(weft_tensors_writer_create(file->folder, w.form->stem, 0, &w.writer));
    WEFT_GO(write_settings(&w));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < w.mades; i++)
            for (int k = 0; k < parts; k++)
                WEFT_GO(put(&w, &w.made[i], k, pass == 0));
    WEFT_GO(weft_tensors_writer_finish(w.writer));
out:
    weft_tensors_writer_free(w.writer);
    free_made(&w);
    return status;
}
