#include "generate/generator/resident_weights.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/path_stamp.h"
#include "exec/store/weights.h"
#include "plan/queue/residency.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct weft_resident_loan {
    weft_resident_weights *owner;
    weft_store *store;
    char *key;      /* name, folder, adapters and shapes of the weights */
    uint64_t stamp; /* of the folder and the adapters */
    char *model, *part, *adapters;
    weft_residency use;
};

struct weft_resident_weights {
    weft_resident_options options;
    char *model, *adapters; /* names for the reports */
    pthread_mutex_t lock;   /* of the members below */
    weft_resident_loan **at;
    weft_residency *uses; /* copies of at[i]->use, for the rules */
    int64_t count, capacity, uses_capacity;
    int64_t loads, unloads, order;
};

weft_status weft_resident_create(const weft_resident_options *options, weft_resident_weights **out)
{
    WEFT_TRY(WEFT_NEW(*out, 1, "the weights"));
    (*out)->options = *options;
    pthread_mutex_init(&(*out)->lock, NULL);
    return weft_resident_set_names(*out, "", "");
}

static void free_loan(weft_resident_loan *l)
{
    if (!l)
        return;
    weft_store_free(l->store);
    weft_free(l->key);
    weft_free(l->model);
    weft_free(l->part);
    weft_free(l->adapters);
    weft_free(l);
}

void weft_resident_free(weft_resident_weights *r)
{
    if (!r)
        return;
    for (int64_t i = 0; i < r->count; i++)
        free_loan(r->at[i]);
    weft_free(r->at);
    weft_free(r->uses);
    weft_free(r->model);
    weft_free(r->adapters);
    pthread_mutex_destroy(&r->lock);
    weft_free(r);
}

weft_status weft_resident_set_names(weft_resident_weights *r, const char *model,
                                    const char *adapters)
{
    weft_free(r->model);
    weft_free(r->adapters);
    r->model = weft_strdup(model);
    r->adapters = weft_strdup(adapters);
    return WEFT_ALLOCATED(r->model && r->adapters, "the name of a model");
}

/* ---- parts ---------------------------------------------------------------------------------- */

int64_t weft_resident_part_bytes(const weft_resident_part *part)
{
    int64_t bytes = 0;
    int count;
    const weft_value *param = weft_graph_params(part->graph, &count);
    for (int i = 0; i < count; i++) {
        const weft_value_info *info = weft_value_get(part->graph, param[i]);
        bytes += weft_aligned(weft_shape_count(&info->shape) * weft_dtype_bytes(info->dtype));
    }
    return bytes;
}

/* Hash of the names, types and shards of the parameters. */
static uint64_t hash_params(weft_graph *graph)
{
    uint64_t hash = 0;
    int count;
    const weft_value *param = weft_graph_params(graph, &count);
    for (int i = 0; i < count; i++) {
        const weft_tensor t = weft_tensor_of(graph, param[i]);
        uint64_t values[2 + 3 * WEFT_MAX_RANK] = {
            XXH3_64bits_withSeed(t.name, strlen(t.name), hash), (uint64_t)t.dtype};
        for (int d = 0; d < t.shape.rank; d++) {
            values[2 + 3 * d] = (uint64_t)t.shape.dim[d];
            values[3 + 3 * d] = (uint64_t)t.whole.dim[d];
            values[4 + 3 * d] = (uint64_t)t.start[d];
        }
        hash = XXH3_64bits(values, sizeof values);
    }
    return hash;
}

static weft_status make_key(const weft_resident_part *part, char **key)
{
    weft_buf text = {0};
    char *choice = part->int8_layers ? json_dumps(part->int8_layers, JSON_COMPACT) : NULL;
    WEFT_TRY(WEFT_ALLOCATED(choice || !part->int8_layers, "the choice of layers"));
    weft_buf_printf(&text, "%s\n%s\n%s\n%016" PRIx64 "\n%016" PRIx64, part->name, part->folder,
                    part->backend ? part->backend->name : "", hash_params(part->graph),
                    choice ? XXH3_64bits(choice, strlen(choice)) : 0);
    free(choice);
    for (int i = 0; i < part->adapter_count; i++)
        weft_buf_printf(&text, "\n%s\n%.17g %d", part->adapters[i].path, part->adapters[i].weight,
                        part->adapters[i].expert);
    *key = text.data;
    return weft_buf_check(&text);
}

static uint64_t stamp_files(const weft_resident_part *part)
{
    uint64_t stamp = weft_path_stamp(0, part->folder, 0);
    for (int i = 0; i < part->adapter_count; i++)
        stamp = weft_path_stamp(stamp, part->adapters[i].path, 0);
    return stamp;
}

/* ---- loaded weights ------------------------------------------------------------------------- */

/* Lock held. */
static json_t *describe(const weft_resident_weights *r)
{
    json_t *weights = json_array();
    for (int64_t i = 0; weights && i < r->count; i++) {
        const weft_resident_loan *l = r->at[i];
        json_array_append_new(weights, json_pack("{s:s, s:s, s:s, s:I}", "model", l->model, "part",
                                                 l->part, "adapters", l->adapters, "bytes",
                                                 (json_int_t)l->use.bytes));
    }
    return json_pack("{s:o, s:I, s:I}", "weights", weights, "loads", (json_int_t)r->loads,
                     "unloads", (json_int_t)r->unloads);
}

/* Lock held. */
static void report(const weft_resident_weights *r)
{
    json_t *state = r->options.changed ? describe(r) : NULL;
    if (state)
        r->options.changed(r->options.user, state);
    json_decref(state);
}

/* Lock held. The memory goes back to the system, which other processes need. */
static void unload(weft_resident_weights *r, int64_t i)
{
    free_loan(r->at[i]);
    memmove(r->at + i, r->at + i + 1, (size_t)(r->count - i - 1) * sizeof *r->at);
    r->count--;
    r->unloads++;
    malloc_trim(0);
    report(r);
}

/* Lock held. */
static const weft_residency *uses_of(weft_resident_weights *r)
{
    for (int64_t i = 0; i < r->count; i++)
        r->uses[i] = r->at[i]->use;
    return r->uses;
}

/* Lock held. Weights without users whose files have changed are unloaded. */
static weft_resident_loan *find(weft_resident_weights *r, const char *key, uint64_t stamp)
{
    weft_resident_loan *found = NULL;
    for (int64_t i = r->count - 1; i >= 0; i--) {
        if (strcmp(r->at[i]->key, key) != 0)
            continue;
        if (r->at[i]->stamp == stamp)
            found = r->at[i];
        else if (!r->at[i]->use.users)
            unload(r, i);
    }
    return found;
}

weft_status weft_resident_find(weft_resident_weights *r, const weft_resident_part *part,
                               weft_resident_loan **loan)
{
    char *key;
    WEFT_TRY(make_key(part, &key));
    pthread_mutex_lock(&r->lock);
    *loan = find(r, key, stamp_files(part));
    if (*loan)
        (*loan)->use.users++;
    pthread_mutex_unlock(&r->lock);
    weft_free(key);
    return WEFT_OK;
}

static weft_status fill(const weft_resident_weights *r, const weft_resident_part *part,
                        weft_resident_loan *l)
{
    l->stamp = stamp_files(part);
    WEFT_TRY(make_key(part, &l->key));
    l->model = weft_strdup(r->model);
    l->part = weft_strdup(part->name);
    l->adapters = weft_strdup(part->adapter_count ? r->adapters : "");
    l->store = weft_store_create_for(part->backend);
    WEFT_TRY(WEFT_ALLOCATED(l->model && l->part && l->adapters && l->store, "the weights"));
    WEFT_TRY(weft_device_check_memory(weft_store_device(l->store), weft_resident_part_bytes(part),
                                      "weights"));
    WEFT_TRY(weft_weights_reserve(l->store, part->graph));
    return part->load(part->user, l->store);
}

/* Lock held. */
static weft_status append(weft_resident_weights *r, weft_resident_loan *l)
{
    WEFT_TRY(weft_grow((void **)&r->at, r->count, &r->capacity, sizeof *r->at));
    WEFT_TRY(weft_grow((void **)&r->uses, r->count, &r->uses_capacity, sizeof *r->uses));
    r->at[r->count++] = l;
    r->loads++;
    l->owner = r;
    l->use = (weft_residency){.bytes = weft_store_bytes(l->store), .users = 1};
    report(r);
    return WEFT_OK;
}

weft_status weft_resident_load(weft_resident_weights *r, const weft_resident_part *part,
                               weft_resident_loan **loan)
{
    weft_resident_loan *l;
    WEFT_TRY(WEFT_NEW(l, 1, "the weights"));
    weft_status_code status = WEFT_OK;
    *loan = NULL;
    WEFT_GO(fill(r, part, l));
    pthread_mutex_lock(&r->lock);
    status = append(r, l);
    pthread_mutex_unlock(&r->lock);
    WEFT_GO(status);
    *loan = l;
out:
    if (status != WEFT_OK)
        free_loan(l);
    return status;
}

void weft_resident_return(weft_resident_loan *l)
{
    if (!l)
        return;
    weft_resident_weights *r = l->owner;
    pthread_mutex_lock(&r->lock);
    l->use.users--;
    l->use.used = weft_now();
    l->use.order = ++r->order;
    pthread_mutex_unlock(&r->lock);
}

weft_store *weft_resident_store(const weft_resident_loan *l)
{
    return l->store;
}

void weft_resident_make_room(weft_resident_weights *r, int64_t room)
{
    pthread_mutex_lock(&r->lock);
    for (int64_t i; (i = weft_residency_victim(uses_of(r), r->count, room)) >= 0;)
        unload(r, i);
    pthread_mutex_unlock(&r->lock);
}

double weft_resident_unload_idle(weft_resident_weights *r)
{
    const double idle = r->options.idle;
    double wait = -1;
    if (idle <= 0)
        return wait;
    pthread_mutex_lock(&r->lock);
    for (int64_t i; (i = weft_residency_idle(uses_of(r), r->count, idle, weft_now())) >= 0;)
        unload(r, i);
    wait = weft_residency_wait(uses_of(r), r->count, idle, weft_now());
    pthread_mutex_unlock(&r->lock);
    return wait;
}

int64_t weft_resident_bytes(weft_resident_weights *r)
{
    int64_t bytes = 0;
    pthread_mutex_lock(&r->lock);
    for (int64_t i = 0; i < r->count; i++)
        bytes += r->at[i]->use.bytes;
    pthread_mutex_unlock(&r->lock);
    return bytes;
}

json_t *weft_resident_json(weft_resident_weights *r)
{
    pthread_mutex_lock(&r->lock);
    json_t *state = describe(r);
    pthread_mutex_unlock(&r->lock);
    return state;
}
