#include "model/adapter.h"

#include "base/config.h"
#include "base/convert.h"
#include "base/fs.h"
#include "base/json_foreign.h"
#include "base/listing.h"
#include "base/log.h"
#include "format/tensors/safetensors_read.h"
#include "format/tensors/tensors.h"
#include "format/tensors/tensors_finite.h"
#include "graph/builder_helpers.h"
#include "model/adapter_names.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A change to rows of one parameter: a pair or a full difference. */
typedef struct delta {
    weft_adapter_target target;
    const weft_stored_tensor *down, *up; /* NULL: `whole` is used */
    const weft_stored_tensor *whole;
    int64_t first, rows; /* rows of `up` or `whole` for this parameter */
    /* `up` may be one block of several: its first row in the parameter, and of `down` */
    int64_t row, down_first;
    int64_t columns, rank;
    bool turned;
    double scale;
} delta;

/* Tensors of one module in the file. `name` is the common beginning of their names. */
typedef struct module {
    const char *name;
    const weft_stored_tensor *part[WEFT_ADAPTER_KINDS];
    /* Blocks of B, in place of a whole one: each multiplies its own rows of A. */
    const weft_stored_tensor *block[WEFT_ADAPTER_PARTS];
} module;

struct weft_adapter {
    weft_tensors *file;
    weft_arena *arena; /* storage of names */
    module *module;    /* sorted by name */
    int64_t modules, module_capacity;
    delta *delta;
    int64_t deltas, delta_capacity;
    /* settings of all modules, from the file's header or adapter_config.json */
    json_t *config;
    const char *config_key; /* prefix of the keys in `config` */
    const char *scope;      /* prefix of the model's names in the graph */
    char config_file[1200];
};

/* ---- settings ------------------------------------------------------------------------------- */

static const json_t *setting(const weft_adapter *a, const char *key)
{
    char full[100];
    snprintf(full, sizeof full, "%s%s", a->config_key, key);
    return json_object_get(a->config, full);
}

/* The fields of PEFT's LoraConfig that are read, or choose only how matrices were trained. Other
 * values of init_lora_weights change the weights of the base model. */
static const weft_json_field peft_fields[] = {
    {"peft_type", NULL},
    {"r", NULL},
    {"lora_alpha", NULL},
    {"rank_pattern", NULL},
    {"alpha_pattern", NULL},
    {"use_rslora", NULL},
    {"bias", "[\"none\"]"},
    {"init_lora_weights", "[true, false, \"gaussian\", \"orthogonal\", \"eva\"]"},
    {"target_modules", NULL},
    {"exclude_modules", NULL},
    {"layers_to_transform", NULL},
    {"layers_pattern", NULL},
    {"lora_dropout", NULL},
    {"base_model_name_or_path", NULL},
    {"revision", NULL},
    {"task_type", NULL},
    {"inference_mode", NULL},
    {"auto_mapping", NULL},
    {"peft_version", NULL},
    {"megatron_config", NULL},
    {"megatron_core", NULL},
    {"loftq_config", NULL},
    {"eva_config", NULL},
    {"corda_config", NULL},
    {"lora_ga_config", NULL},
    {"velora_config", NULL},
    {"qalora_group_size", NULL},
    {"runtime_config", NULL},
    {NULL, NULL}};

/* Reads adapter_config.json of PEFT, or "lora_adapter_metadata" of the file header. Keys of the
 * header begin with the folder of the model in its pipeline. */
static weft_status read_config(weft_adapter *a, const weft_family *family)
{
    const char *file = weft_tensors_at(a->file, 0)->file, *base = weft_path_base(file);
    const char *header = weft_tensors_metadata(a->file, "lora_adapter_metadata");
    a->config_key = "";
    snprintf(a->config_file, sizeof a->config_file, "%.*sadapter_config.json", (int)(base - file),
             file);
    const bool peft = !strncmp(base, "adapter_model.", strlen("adapter_model."));
    if (peft && weft_path_exists(a->config_file))
        WEFT_TRY(weft_json_load(a->config_file, &a->config));
    else if (peft && !header)
        weft_warning(WEFT_MSG_ADAPTER_INCOMPLETE, WEFT_AT(.file = a->config_file),
                     "not found next to %s, so alpha is set to the rank", base);
    else if (header) {
        snprintf(a->config_file, sizeof a->config_file, "%.1100s (lora_adapter_metadata)", file);
        WEFT_TRY(weft_json_parse(header, (int64_t)strlen(header), a->config_file, &a->config));
        const char *own = weft_arena_printf(a->arena, "%s.", family->scope), *const before[] = {
                                                                                 a->scope, own,
                                                                                 "transformer."};
        WEFT_TRY(WEFT_ALLOCATED(own, "%s", a->config_file));
        a->config_key = before[0];
        for (int i = 1; i < WEFT_COUNT(before) && !setting(a, "r"); i++)
            a->config_key = before[i];
    }
    const char *type = json_string_value(setting(a, "peft_type"));
    if (type && strcmp(type, "LORA"))
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = a->config_file, .key = "peft_type", .value = type),
                          "%s is not supported; only LORA is", type);
    return weft_json_check_foreign(a->config, a->config_file, a->config_key, peft_fields,
                                   WEFT_MSG_FORMAT_UNSUPPORTED);
}

/* Returns true if `name` is `pattern` or ends with "." and `pattern`. */
static bool ends_with(const char *name, const char *pattern)
{
    const size_t n = strlen(name), p = strlen(pattern);
    return n >= p && !strcmp(name + n - p, pattern) && (n == p || name[n - p - 1] == '.');
}

/* Reads the only number of a tensor. */
static weft_status read_number(const weft_stored_tensor *t, const char *what, double *value)
{
    float number = 0;
    if (t->count != 1)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = t->file, .key = t->name),
                          "the %s has %" PRId64 " values, not one", what, t->count);
    weft_tensor_to_f32(t, &number);
    *value = (double)number;
    return WEFT_OK;
}

/* Finds alpha in this order: the module's own, a matching pattern, the file's, the rank. */
static weft_status find_alpha(const weft_adapter *a, const module *m, int64_t rank, double *alpha)
{
    const weft_stored_tensor *own = m->part[WEFT_ADAPTER_ALPHA],
                             *scale = m->part[WEFT_ADAPTER_SCALE];
    json_t *patterns = (json_t *)(uintptr_t)setting(a, "alpha_pattern"), *value;
    const json_t *common = setting(a, "lora_alpha");
    const char *pattern;
    *alpha = json_is_number(common) ? json_number_value(common) : (double)rank;
    json_object_foreach(patterns, pattern, value)
    {
        if (strpbrk(pattern, "^$*+?()[]|\\"))
            return weft_error(
                WEFT_MSG_FORMAT_UNSUPPORTED,
                WEFT_AT(.file = a->config_file, .key = "alpha_pattern", .value = pattern),
                "\"%s\" is a regular expression; weft reads only the ends of names", pattern);
        if (ends_with(m->name, pattern))
            *alpha = json_number_value(value);
    }
    if (own)
        WEFT_TRY(read_number(own, "alpha", alpha));
    if (scale) {
        WEFT_TRY(read_number(scale, "scale", alpha));
        *alpha *= (double)rank;
    }
    if (!isfinite(*alpha))
        return weft_error(
            WEFT_MSG_ADAPTER_INVALID,
            WEFT_AT(.file = weft_tensors_path(a->file), .key = m->name, WEFT_NUMBER(*alpha)),
            "the alpha is %g, which is not finite", *alpha);
    return WEFT_OK;
}

/* ---- modules -------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const module *)a)->name, ((const module *)b)->name);
}

static weft_status add_module(weft_adapter *a, const weft_stored_tensor *t, size_t length,
                              weft_adapter_kind kind, int block)
{
    WEFT_TRY(weft_grow((void **)&a->module, a->modules, &a->module_capacity, sizeof *a->module));
    const char *name = weft_arena_printf(a->arena, "%.*s", (int)length, t->name);
    WEFT_TRY(WEFT_ALLOCATED(name, "%s", t->file));
    module *m = &a->module[a->modules++];
    *m = (module){.name = name};
    if (block >= 0)
        m->block[block] = t;
    else
        m->part[kind] = t;
    return WEFT_OK;
}

/* Merges modules of the same name. */
static weft_status join_modules(weft_adapter *a)
{
    int64_t kept = 0;
    if (a->modules > 1)
        qsort(a->module, (size_t)a->modules, sizeof *a->module, by_name);
    for (int64_t i = 0; i < a->modules; i++) {
        const module *from = &a->module[i];
        if (!kept || strcmp(a->module[kept - 1].name, from->name)) {
            a->module[kept++] = *from;
            continue;
        }
        for (int k = 0; k < WEFT_ADAPTER_PARTS; k++)
            if (from->block[k])
                a->module[kept - 1].block[k] = from->block[k];
        for (int k = 0; k < WEFT_ADAPTER_KINDS; k++)
            if (from->part[k] && a->module[kept - 1].part[k])
                return weft_error(WEFT_MSG_ADAPTER_INVALID,
                                  WEFT_AT(.file = from->part[k]->file, .key = from->part[k]->name),
                                  "\"%s\" is the same part of the same module",
                                  a->module[kept - 1].part[k]->name);
            else if (from->part[k])
                a->module[kept - 1].part[k] = from->part[k];
    }
    a->modules = kept;
    return WEFT_OK;
}

static weft_status list_modules(weft_adapter *a)
{
    weft_listing unknown = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < weft_tensors_count(a->file); i++) {
        const weft_stored_tensor *t = weft_tensors_at(a->file, i);
        const char *foreign;
        size_t length;
        int block = -1;
        const weft_adapter_kind kind = weft_adapter_kind_of(t->name, &length, &foreign, &block);
        if (kind == WEFT_ADAPTER_FOREIGN)
            WEFT_GO(weft_error(
                WEFT_MSG_FORMAT_UNSUPPORTED, WEFT_AT(.file = t->file, .key = t->name),
                "this adapter is %s; weft reads LoRA and full weight differences", foreign));
        else if (kind == WEFT_ADAPTER_UNKNOWN)
            weft_listing_add(&unknown, t->name);
        else if (!weft_dtype_is_float(t->dtype) && kind != WEFT_ADAPTER_ALPHA &&
                 kind != WEFT_ADAPTER_SCALE)
            WEFT_GO(
                weft_error(WEFT_MSG_ADAPTER_INVALID,
                           WEFT_AT(.file = t->file, .key = t->name, .value = weft_stored_type(t)),
                           "the type is %s; weights of an adapter are floating-point numbers",
                           weft_stored_type(t)));
        else
            WEFT_GO(add_module(a, t, length, kind, block));
    }
    if (unknown.count)
        WEFT_GO(weft_error(WEFT_MSG_ADAPTER_INVALID,
                           WEFT_AT(.file = weft_tensors_path(a->file), WEFT_NUMBER(unknown.count)),
                           "%" PRId64 " tensors do not belong to an adapter: %s", unknown.count,
                           weft_listing_text(&unknown)));
    WEFT_GO(join_modules(a));
out:
    weft_listing_free(&unknown);
    return status;
}

/* The number of blocks of B. 0: none; -1: one is missing, or B is also whole. */
static int blocks_of(const module *m)
{
    int count = 0, last = 0;
    for (int i = 0; i < WEFT_ADAPTER_PARTS; i++)
        if (m->block[i]) {
            count++;
            last = i + 1;
        }
    return count && (count != last || m->part[WEFT_ADAPTER_UP]) ? -1 : count;
}

/* Checks that every module has both matrices of a pair or none. */
static weft_status check_pairs(const weft_adapter *a)
{
    weft_listing half = {0};
    for (int64_t i = 0; i < a->modules; i++) {
        const weft_stored_tensor *const *part = a->module[i].part;
        const int blocks = blocks_of(&a->module[i]);
        const bool down = part[WEFT_ADAPTER_DOWN], up = part[WEFT_ADAPTER_UP] || blocks;
        const bool alone = (part[WEFT_ADAPTER_ALPHA] || part[WEFT_ADAPTER_SCALE]) &&
                           !part[WEFT_ADAPTER_WEIGHT] && !part[WEFT_ADAPTER_BIAS] && !down && !up;
        if (down != up || alone || blocks < 0)
            weft_listing_add(&half, a->module[i].name);
    }
    const weft_status_code status =
        half.count
            ? weft_error(WEFT_MSG_ADAPTER_INVALID,
                         WEFT_AT(.file = weft_tensors_path(a->file), WEFT_NUMBER(half.count)),
                         "%" PRId64
                         " modules have only one matrix of the pair (lora_A and lora_B, or "
                         "lora_down and lora_up): %s",
                         half.count, weft_listing_text(&half))
            : WEFT_OK;
    weft_listing_free(&half);
    return status;
}

/* ---- deltas --------------------------------------------------------------------------------- */

static bool find_weight(const weft_adapter_names *names, const module *m,
                        weft_adapter_targets *targets)
{
    return weft_adapter_names_find(names, m->name, ".weight", targets) ||
           weft_adapter_names_find(names, m->name, "", targets);
}

/* Some trainers write zeros as differences of parameters that the model lacks. */
static bool is_zero(const weft_stored_tensor *t)
{
    enum { CHUNK = 1024 };
    float chunk[CHUNK];
    for (int64_t at = 0; at < t->count; at += CHUNK) {
        const int64_t here = t->count - at < CHUNK ? t->count - at : CHUNK;
        weft_stored_read(t, at, here, chunk);
        for (int64_t i = 0; i < here; i++)
            if (chunk[i] != 0) /* true for NaN too */
                return false;
    }
    return true;
}

/* Lists the tensors of the module for which the model has no parameter. */
static void list_lost(const weft_adapter_names *names, const module *m, weft_listing *lost)
{
    weft_adapter_targets targets;
    const weft_stored_tensor *bias = m->part[WEFT_ADAPTER_BIAS];
    const bool weight = find_weight(names, m, &targets);
    for (int k = 0; k < WEFT_ADAPTER_BIAS && !weight; k++)
        if (m->part[k] && !(k == WEFT_ADAPTER_WEIGHT && is_zero(m->part[k])))
            weft_listing_add(lost, m->part[k]->name);
    for (int k = 0; k < WEFT_ADAPTER_PARTS && !weight; k++)
        if (m->block[k])
            weft_listing_add(lost, m->block[k]->name);
    if (bias && !weft_adapter_names_find(names, m->name, ".bias", &targets) && !is_zero(bias))
        weft_listing_add(lost, bias->name);
}

/* Finds the family's key mapping with which most modules of the file match the model. */
static weft_status find_mapping(const weft_adapter *a, const weft_family *family,
                                const weft_graph *g, const char *prefix, weft_adapter_names *best)
{
    static const weft_key_mapping own = {.name = "own"};
    const int count = family->mappings ? family->mappings : 1;
    weft_listing least = {0};
    weft_status_code status = WEFT_OK;
    for (int d = 0; d < count; d++) {
        weft_adapter_names names;
        weft_listing lost = {0};
        WEFT_GO(weft_adapter_names_open(g, prefix, family->mappings ? &family->mapping[d] : &own,
                                        &names));
        for (int64_t i = 0; i < a->modules; i++)
            list_lost(&names, &a->module[i], &lost);
        const bool better = d == 0 || lost.count < least.count;
        weft_adapter_names worse = better ? *best : names;
        weft_listing_free(better ? &least : &lost);
        if (better) {
            *best = names;
            least = lost;
        }
        weft_adapter_names_close(&worse);
    }
    if (least.count)
        status = weft_error(WEFT_MSG_ADAPTER_INVALID,
                            WEFT_AT(.file = weft_tensors_path(a->file), WEFT_NUMBER(least.count)),
                            "%" PRId64 " of the adapter's %" PRId64
                            " tensors have no place in the model (%s): "
                            "%s. Use an adapter that was trained for this model.",
                            least.count, weft_tensors_count(a->file), family->class_name,
                            weft_listing_text(&least));
out:
    weft_listing_free(&least);
    return status;
}

static int64_t rows_of(const weft_shape *s)
{
    return s->rank > 0 ? s->dim[0] : 1;
}

static int64_t columns_of(const weft_shape *s)
{
    int64_t columns = 1;
    for (int i = 1; i < s->rank; i++)
        columns *= s->dim[i];
    return columns;
}

/* Adds a delta like `like` for each parameter of the module. `tensor` has the rows of all
 * parameters in order, each `columns` wide. */
static weft_status add_parts(weft_adapter *a, const weft_adapter_targets *targets,
                             const weft_stored_tensor *tensor, int64_t columns, delta like)
{
    int64_t rows = 0;
    bool fits = true;
    for (int i = 0; i < targets->count; i++) {
        const weft_shape *s = &targets->part[i].shape;
        fits = fits && columns_of(s) == like.columns && !(targets->turned && rows_of(s) % 2);
        rows = targets->copies ? rows_of(s) : rows + rows_of(s);
    }
    if (!fits || rows * columns != tensor->count)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = tensor->file, .key = tensor->name),
                          "the adapter has %" PRId64 " rows of %" PRId64
                          " columns; \"%s\"%s of the model has "
                          "%" PRId64 " of %" PRId64 ". Use an adapter for a model of this size.",
                          tensor->count / columns, like.columns, targets->part[0].param,
                          targets->count > 1 ? " with the parts that follow" : "", rows,
                          columns_of(&targets->part[0].shape));
    for (int i = 0; i < targets->count; i++) {
        WEFT_TRY(weft_grow((void **)&a->delta, a->deltas, &a->delta_capacity, sizeof *a->delta));
        like.target = targets->part[i];
        like.turned = targets->turned;
        like.rows = rows_of(&like.target.shape);
        a->delta[a->deltas++] = like;
        like.first += targets->copies ? 0 : like.rows;
    }
    return WEFT_OK;
}

/* Adds a delta for each block of B, whose rows are those of the parameter in order. */
static weft_status add_blocks(weft_adapter *a, const module *m, int blocks,
                              const weft_adapter_targets *targets)
{
    const weft_stored_tensor *down = m->part[WEFT_ADAPTER_DOWN];
    const weft_shape *shape = &targets->part[0].shape;
    const int64_t all = down->rank >= 2 ? down->dim[0] : 0, rank = all / blocks;
    delta d = {.target = targets->part[0], .down = down, .rank = rank};
    double alpha;
    bool fits = targets->count == 1 && !targets->turned && rank > 0 && all % blocks == 0 &&
                down->count / (all ? all : 1) == columns_of(shape);
    for (int i = 0; i < blocks && fits; i++) {
        const weft_stored_tensor *up = m->block[i];
        fits = up->rank == 2 && up->dim[1] == rank;
        d.row += fits ? up->dim[0] : 0;
    }
    if (!fits || d.row != rows_of(shape))
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = down->file, .key = down->name),
                          "the shape does not match the %d blocks of \"lora_up\" and \"%s\" of the "
                          "model. Use an adapter for a model of this size.",
                          blocks, targets->part[0].param);
    WEFT_TRY(find_alpha(a, m, rank, &alpha));
    d.scale = alpha / (double)rank;
    d.columns = columns_of(shape);
    d.row = 0;
    for (int i = 0; i < blocks; i++) {
        WEFT_TRY(weft_grow((void **)&a->delta, a->deltas, &a->delta_capacity, sizeof *a->delta));
        d.up = m->block[i];
        d.rows = d.up->dim[0];
        a->delta[a->deltas++] = d;
        d.row += d.rows;
        d.down_first += rank;
    }
    return WEFT_OK;
}

static weft_status add_pair(weft_adapter *a, const module *m, const weft_adapter_targets *targets)
{
    if (blocks_of(m))
        return add_blocks(a, m, blocks_of(m), targets);
    const weft_stored_tensor *down = m->part[WEFT_ADAPTER_DOWN], *up = m->part[WEFT_ADAPTER_UP];
    const int64_t rank = down->rank >= 2 ? down->dim[0] : 0;
    double alpha;
    if (rank < 1 || up->rank < 2 || up->dim[1] != rank || up->count != up->dim[0] * rank)
        return weft_error(WEFT_MSG_TENSOR_SHAPE, WEFT_AT(.file = down->file, .key = down->name),
                          "the shape does not match that of \"%s\"; a pair has the shapes (rank, "
                          "columns) and (rows, rank) with one rank",
                          up->name);
    WEFT_TRY(find_alpha(a, m, rank, &alpha));
    const bool rooted = json_is_true(setting(a, "use_rslora"));
    return add_parts(a, targets, up, rank,
                     (delta){.down = down,
                             .up = up,
                             .rank = rank,
                             .columns = down->count / rank,
                             .scale = alpha / (rooted ? sqrt((double)rank) : (double)rank)});
}

static weft_status add_whole(weft_adapter *a, const weft_stored_tensor *t,
                             const weft_adapter_targets *targets)
{
    const int64_t columns = columns_of(&targets->part[0].shape);
    return add_parts(a, targets, t, columns, (delta){.whole = t, .columns = columns, .scale = 1});
}

static weft_status add_deltas(weft_adapter *a, const weft_adapter_names *names)
{
    for (int64_t i = 0; i < a->modules; i++) {
        const module *m = &a->module[i];
        weft_adapter_targets targets;
        if (find_weight(names, m, &targets)) {
            if (m->part[WEFT_ADAPTER_DOWN])
                WEFT_TRY(add_pair(a, m, &targets));
            if (m->part[WEFT_ADAPTER_WEIGHT])
                WEFT_TRY(add_whole(a, m->part[WEFT_ADAPTER_WEIGHT], &targets));
        }
        if (m->part[WEFT_ADAPTER_BIAS] &&
            weft_adapter_names_find(names, m->name, ".bias", &targets))
            WEFT_TRY(add_whole(a, m->part[WEFT_ADAPTER_BIAS], &targets));
    }
    return WEFT_OK;
}

weft_status weft_adapter_open(const weft_family *family, const weft_graph *g, const char *prefix,
                              const char *path, weft_adapter **adapter)
{
    weft_adapter_names names = {0};
    weft_adapter *a = weft_alloc(sizeof *a);
    weft_status_code status = WEFT_OK;
    if (a)
        a->arena = weft_arena_create();
    WEFT_GO(WEFT_ALLOCATED(a && a->arena, "%s", path));
    a->scope = prefix;
    WEFT_GO(weft_tensors_open(path, &a->file));
    if (!weft_tensors_count(a->file))
        WEFT_GO(
            weft_error(WEFT_MSG_ADAPTER_INVALID, WEFT_AT(.file = path), "the file has no tensors"));
    WEFT_GO(weft_tensors_verify(a->file));
    WEFT_GO(read_config(a, family));
    WEFT_GO(list_modules(a));
    WEFT_GO(check_pairs(a));
    for (int64_t i = 0; i < weft_tensors_count(a->file); i++)
        WEFT_GO(weft_stored_check_finite(weft_tensors_at(a->file, i)));
    WEFT_GO(find_mapping(a, family, g, prefix, &names));
    WEFT_GO(add_deltas(a, &names));
    *adapter = a;
    a = NULL;
out:
    weft_adapter_names_close(&names);
    weft_adapter_close(a);
    return status;
}

void weft_adapter_close(weft_adapter *a)
{
    if (!a)
        return;
    weft_tensors_close(a->file);
    weft_arena_free(a->arena);
    json_decref(a->config);
    weft_free(a->module);
    weft_free(a->delta);
    weft_free(a);
}

int64_t weft_adapter_params(const weft_adapter *a)
{
    int64_t params = 0;
    for (int64_t i = 0; i < a->deltas; i++) {
        bool first = true;
        for (int64_t k = 0; k < i && first; k++)
            first = a->delta[k].target.param != a->delta[i].target.param;
        params += first;
    }
    return params;
}

/* ---- pairs ---------------------------------------------------------------------------------- */

/* Copies the rows of B of delta `d` to *p, from its row in the parameter and rank `rank` on. */
static void put_rows(const delta *d, int64_t rank, weft_adapter_pair *p)
{
    for (int64_t r = 0; r < d->rows; r++) {
        const int64_t from = d->first + (d->turned ? (r + d->rows / 2) % d->rows : r);
        weft_stored_read(d->up, from * d->rank, d->rank, p->up + (d->row + r) * p->rank + rank);
    }
}

/* Makes the pair of `count` deltas: one, or all blocks of a module, whose B is block diagonal. */
static weft_status take_pair(const weft_adapter *a, const delta *d, int64_t count,
                             const char *prefix, weft_adapter_pair *p)
{
    char item[600];
    weft_stack_item(d->target.param + strlen(prefix), d->target.item, item, sizeof item);
    if (!d->down)
        return weft_error(WEFT_MSG_FORMAT_UNSUPPORTED,
                          WEFT_AT(.file = weft_tensors_path(a->file), .key = d->whole->name),
                          "this is a full weight difference, not a pair of matrices. Merge the "
                          "adapter into the model with weft convert --lora.");
    const char *end = strrchr(item, '.');
    *p = (weft_adapter_pair){.rank = count * d->rank,
                             .rows = d[count - 1].row + d[count - 1].rows,
                             .columns = d->columns,
                             .alpha = d->scale * (double)(count * d->rank)};
    snprintf(p->module, sizeof p->module, "%.*s", (int)(end ? end - item : 0), item);
    p->down = weft_alloc(p->rank * p->columns * (int64_t)sizeof *p->down + 1);
    p->up = weft_calloc(p->rows * p->rank + 1, sizeof *p->up);
    WEFT_TRY(WEFT_ALLOCATED(p->down && p->up, "%s", weft_tensors_path(a->file)));
    weft_stored_read(d->down, d->down_first * p->columns, p->rank * p->columns, p->down);
    for (int64_t i = 0; i < count; i++)
        put_rows(&d[i], i * d->rank, p);
    return WEFT_OK;
}

weft_status weft_adapter_pairs(const weft_adapter *a, const char *prefix, weft_adapter_pair **pair,
                               int64_t *count)
{
    weft_adapter_pair *made = weft_calloc(a->deltas + 1, sizeof *made);
    weft_status_code status = WEFT_OK;
    int64_t pairs = 0;
    WEFT_TRY(WEFT_ALLOCATED(made, "the adapter"));
    for (int64_t i = 0, blocks; i < a->deltas; i += blocks) {
        blocks = 1;
        while (i + blocks < a->deltas && a->delta[i + blocks].down_first > 0)
            blocks++;
        WEFT_GO(take_pair(a, &a->delta[i], blocks, prefix, &made[pairs++]));
    }
    *pair = made;
    *count = pairs;
    return WEFT_OK;
out:
    weft_adapter_pairs_free(made, pairs);
    return status;
}

void weft_adapter_pairs_free(weft_adapter_pair *pair, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        weft_free(pair[i].down);
        weft_free(pair[i].up);
    }
    weft_free(pair);
}

/* ---- merging -------------------------------------------------------------------------------- */

/* A delta of the parameter that is merged. */
typedef struct term {
    const delta *delta;
    double scale;
    double *down; /* (rank, local columns); NULL: a full difference */
} term;

/* Merge of one item of a parameter, row by row. */
typedef struct merging {
    term *term;
    int64_t terms, capacity;
    int64_t *column; /* [columns] of the item: index of each local column in an unsharded row */
    int64_t columns, rows, start;
    int64_t longest;   /* elements of the longest row of `up` or of a full difference */
    char *row_buffers; /* row buffers, one per thread */
    int threads;
} merging;

/* Row buffer of one thread: sum and product [columns], narrow [columns], read [longest]. */
typedef struct row_buffer {
    double *sum, *product;
    float *values_f32, *read;
} row_buffer;

static int64_t buffer_bytes(const merging *m)
{
    return weft_aligned(m->columns * (8 + 8 + 4) + m->longest * 4);
}

static row_buffer buffer_of(const merging *m, int thread)
{
    double *sum = (double *)(void *)(m->row_buffers + thread * buffer_bytes(m));
    float *values_f32 = (float *)(sum + 2 * m->columns);
    return (row_buffer){sum, sum + m->columns, values_f32, values_f32 + m->columns};
}

static void free_merging(merging *m)
{
    for (int64_t i = 0; i < m->terms; i++)
        weft_free(m->term[i].down);
    weft_free(m->term);
    weft_free(m->column);
    weft_free(m->row_buffers);
}

static weft_status out_of_memory(const weft_adapter_box *box)
{
    return weft_no_memory("adapters of \"%s\"", box->param);
}

/* Lists the local columns: the box's dims from `d` on, in C order. */
static weft_status lay_columns(merging *m, const weft_adapter_box *box, int d)
{
    m->columns = 1;
    for (int i = d; i < box->shape.rank; i++)
        m->columns *= box->shape.dim[i];
    m->column = weft_alloc(m->columns * (int64_t)sizeof *m->column + 1);
    WEFT_TRY(WEFT_ALLOCATED(m->column, "adapters of \"%s\"", box->param));
    for (int64_t c = 0; c < m->columns; c++) {
        int64_t rest = c, step = 1;
        for (int i = box->shape.rank - 1; i >= d; i--) {
            m->column[c] += (box->start[i] + rest % box->shape.dim[i]) * step;
            rest /= box->shape.dim[i];
            step *= box->whole.dim[i];
        }
    }
    return WEFT_OK;
}

static weft_status add_term(merging *m, const weft_adapter_box *box, const delta *d, double weight)
{
    WEFT_TRY(weft_grow((void **)&m->term, m->terms, &m->capacity, sizeof *m->term));
    term *t = &m->term[m->terms++];
    const int64_t length = d->down ? d->rank : d->columns;
    m->longest = length > m->longest ? length : m->longest;
    *t = (term){.delta = d, .scale = d->scale * weight};
    if (!d->down)
        return WEFT_OK;
    t->down = weft_alloc(d->rank * m->columns * (int64_t)sizeof *t->down + 1);
    float *row = weft_alloc(d->columns * (int64_t)sizeof *row + 1);
    if (!t->down || !row) {
        weft_free(row);
        return out_of_memory(box);
    }
    for (int64_t k = 0; k < d->rank; k++) {
        weft_stored_read(d->down, (d->down_first + k) * d->columns, d->columns, row);
        for (int64_t c = 0; c < m->columns; c++)
            t->down[k * m->columns + c] = (double)row[m->column[c]];
    }
    weft_free(row);
    return WEFT_OK;
}

/* product = up[0] down[0] + up[1] down[1] + ..., in this order. Columns are processed in blocks
 * that fit the L1 cache, with four rows of `down` per pass over the sums. */
static void multiply(double *restrict product, const float *up, const double *down, int64_t rank,
                     int64_t columns)
{
    enum { BLOCK = 1024 };
    memset(product, 0, (size_t)columns * sizeof *product);
    for (int64_t from = 0; from < columns; from += BLOCK) {
        const int64_t here = columns - from < BLOCK ? columns - from : BLOCK;
        double *restrict to = product + from;
        int64_t k = 0;
        for (; k + 4 <= rank; k += 4) {
            const double *restrict a = down + k * columns + from, *restrict b = a + columns,
                                   *restrict c = b + columns, *restrict d = c + columns;
            const double u[4] = {(double)up[k], (double)up[k + 1], (double)up[k + 2],
                                 (double)up[k + 3]};
            for (int64_t i = 0; i < here; i++)
                to[i] = to[i] + u[0] * a[i] + u[1] * b[i] + u[2] * c[i] + u[3] * d[i];
        }
        for (; k < rank; k++)
            for (int64_t i = 0; i < here; i++)
                to[i] += (double)up[k] * down[k * columns + from + i];
    }
}

/* Adds the term for row `row` of the item to row_buffers->sum. */
static void add_row(const merging *m, const row_buffer *row_buffers, const term *t, int64_t row)
{
    const delta *d = t->delta;
    row -= d->row;
    if (row < 0 || row >= d->rows) /* of another block */
        return;
    const int64_t from = d->first + (d->turned ? (row + d->rows / 2) % d->rows : row);
    if (!t->down) {
        weft_stored_read(d->whole, from * d->columns, d->columns, row_buffers->read);
        for (int64_t c = 0; c < m->columns; c++)
            row_buffers->sum[c] += t->scale * (double)row_buffers->read[m->column[c]];
        return;
    }
    weft_stored_read(d->up, from * d->rank, d->rank, row_buffers->read);
    multiply(row_buffers->product, row_buffers->read, t->down, d->rank, m->columns);
    for (int64_t c = 0; c < m->columns; c++)
        row_buffers->sum[c] += t->scale * row_buffers->product[c];
}

/* Merges local row `row`, stored at `data`. */
static void merge_row(const merging *m, const row_buffer *row_buffers, int64_t row, void *data,
                      weft_dtype dtype)
{
    weft_convert(row_buffers->values_f32, WEFT_F32, data, dtype, m->columns);
    for (int64_t c = 0; c < m->columns; c++)
        row_buffers->sum[c] = (double)row_buffers->values_f32[c];
    for (int64_t i = 0; i < m->terms; i++)
        add_row(m, row_buffers, &m->term[i], m->start + row);
    for (int64_t c = 0; c < m->columns; c++)
        row_buffers->values_f32[c] = (float)row_buffers->sum[c];
    weft_convert(data, dtype, row_buffers->values_f32, WEFT_F32, m->columns);
}

/* Collects the terms for item `item` of the parameter. */
static weft_status gather_terms(merging *m, const weft_adapter_use *use, int count,
                                const weft_adapter_box *box, int64_t item)
{
    for (int i = 0; i < count; i++)
        for (int64_t k = 0; k < use[i].adapter->deltas; k++) {
            const delta *d = &use[i].adapter->delta[k];
            if (d->target.item != item || strcmp(d->target.param, box->param))
                continue;
            if (!m->column)
                WEFT_TRY(lay_columns(m, box, (item >= 0) + 1));
            WEFT_TRY(add_term(m, box, d, use[i].weight));
        }
    return WEFT_OK;
}

/* Merges item `item` of the box; -1: the complete box, not stacked. Each row is processed by one
 * thread. */
static weft_status merge_item(const weft_adapter_use *use, int count, const weft_adapter_box *box,
                              int64_t item, bool *changed)
{
    merging m = {.rows = 1, .threads = omp_get_max_threads()};
    const int stack = item >= 0;
    if (box->shape.rank > stack) {
        m.rows = box->shape.dim[stack];
        m.start = box->start[stack];
    }
    weft_status_code status = gather_terms(&m, use, count, box, item);
    if (status != WEFT_OK || !m.terms)
        goto out;
    *changed = true;
    m.row_buffers = weft_alloc_aligned(m.threads * buffer_bytes(&m));
    WEFT_GO(WEFT_ALLOCATED(m.row_buffers, "adapters of \"%s\"", box->param));
    const int64_t bytes = m.columns * weft_dtype_bytes(box->dtype);
    char *data = (char *)box->data + (stack ? (item - box->start[0]) * m.rows * bytes : 0);
#pragma omp parallel for schedule(static) num_threads(m.threads)
    for (int64_t r = 0; r < m.rows; r++) {
        const row_buffer row_buffers = buffer_of(&m, omp_get_thread_num());
        merge_row(&m, &row_buffers, r, data + r * bytes, box->dtype);
    }
out:
    free_merging(&m);
    return status;
}

weft_status weft_adapters_merge(const weft_adapter_use *use, int count, const weft_adapter_box *box,
                                bool *changed)
{
    bool any = false;
    const bool stack = weft_name_is_stack(box->param);
    if (!weft_dtype_is_float(box->dtype))
        return WEFT_OK;
    for (int64_t i = 0; i < (stack ? box->shape.dim[0] : 1); i++)
        WEFT_TRY(merge_item(use, count, box, stack ? box->start[0] + i : -1, &any));
    if (changed)
        *changed = any;
    return WEFT_OK;
}
