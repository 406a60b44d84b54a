#include "train/step_cache.h"

#include "base/rng.h"

#include <string.h>
#include <xxhash.h>

typedef struct entry {
    uint64_t key;
    weft_step step;
} entry;

struct weft_step_cache {
    entry **entry; /* each of its own allocation: steps are handed out */
    int64_t count, room;
    weft_program **bound;
    int bound_count;
    int64_t made, found;
};

weft_step_cache *weft_step_cache_create(void)
{
    return weft_alloc(sizeof(weft_step_cache));
}

void weft_step_cache_free(weft_step_cache *c)
{
    if (!c)
        return;
    for (int64_t i = 0; i < c->count; i++) {
        weft_step_free(&c->entry[i]->step);
        weft_free(c->entry[i]);
    }
    weft_free(c->entry);
    weft_free(c->bound);
    weft_free(c);
}

static uint64_t mix_text(uint64_t key, const char *text)
{
    return weft_seed_mix(key, XXH3_64bits(text, strlen(text)));
}

static uint64_t mix_number(uint64_t key, double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return weft_seed_mix(key, bits);
}

static uint64_t key_of(const weft_graph *whole, const weft_optimizer_config *o,
                       const weft_place_of_run *place)
{
    uint64_t key = weft_graph_hash(whole);
    const double numbers[] = {
        o->beta1,        o->beta2,       o->eps,
        o->weight_decay, o->clip_norm,   o->decay_all,
        o->ema_decay,    place->profile, place->comm ? weft_comm_rank(place->comm) : 0,
        place->kind};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        key = mix_number(key, numbers[i]);
    for (int i = 0; i < place->mesh.axis_count; i++)
        key = mix_number(mix_text(key, place->mesh.axis[i].name), place->mesh.axis[i].size);
    for (int i = 0; i < place->recompute_count; i++)
        key = mix_text(key, place->recompute[i]);
    const weft_pass_switches *passes = place->passes ? place->passes : &weft_pass_defaults;
    key = weft_seed_mix(key, XXH3_64bits(passes, sizeof *passes));
    return mix_text(key, place->backend->name);
}

weft_status weft_step_cache_get(weft_step_cache *c, weft_graph *whole,
                                const weft_optimizer_config *optimizer,
                                const weft_place_of_run *place, weft_step **step)
{
    if (!whole)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    const uint64_t key = key_of(whole, optimizer, place);
    for (int64_t i = 0; i < c->count; i++)
        if (c->entry[i]->key == key) {
            weft_graph_free(whole);
            c->found++;
            *step = &c->entry[i]->step;
            return WEFT_OK;
        }
    entry *made = weft_alloc(sizeof *made);
    weft_status_code status =
        made ? weft_grow((void **)&c->entry, c->count, &c->room, sizeof *c->entry)
             : weft_fail(WEFT_E_MEMORY, "out of memory for a step");
    if (status != WEFT_OK)
        weft_graph_free(whole);
    else
        status = weft_step_plan(whole, optimizer, place, &made->step);
    if (status != WEFT_OK) {
        weft_free(made);
        return status;
    }
    made->key = key;
    c->entry[c->count++] = made;
    c->made++;
    *step = &made->step;
    return WEFT_OK;
}

static bool bound_already(const weft_step_cache *c, weft_step *const *steps, int count)
{
    for (int i = 0; i < count && count == c->bound_count; i++)
        if (c->bound[i] != steps[i]->program)
            return false;
    return count == c->bound_count;
}

void weft_step_cache_unbind(weft_step_cache *c)
{
    for (int i = 0; i < c->bound_count; i++)
        weft_program_unbind(c->bound[i]);
    c->bound_count = 0;
}

weft_status weft_step_cache_bind(weft_step_cache *c, weft_step *const *steps, int count,
                                 weft_store *store, uint64_t seed)
{
    if (bound_already(c, steps, count))
        return WEFT_OK;
    weft_step_cache_unbind(c);
    weft_free(c->bound);
    c->bound = weft_alloc(count * (int64_t)sizeof *c->bound);
    if (!c->bound)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d steps", count);
    for (int i = 0; i < count; i++) {
        WEFT_TRY(weft_store_init(store, steps[i]->graph, seed));
        c->bound[i] = steps[i]->program;
    }
    WEFT_TRY(weft_programs_bind(c->bound, count, store));
    c->bound_count = count;
    return WEFT_OK;
}

int64_t weft_step_cache_bytes(const weft_step_cache *c)
{
    return weft_programs_bytes(c->bound, c->bound_count);
}

void weft_step_cache_counts(const weft_step_cache *c, int64_t *made, int64_t *found)
{
    *made = c->made;
    *found = c->found;
}
