#include "train/step_cache.h"

#include "base/rng.h"
#include "runtime/program_cache.h"

#include <string.h>
#include <xxhash.h>

/* Graphs and programs of so many bytes stay for stages that ask again. */
static const int64_t max_bytes = (int64_t)1 << 30;

struct weft_step_cache {
    weft_program_cache *cache; /* of weft_step, each of its own allocation: steps are handed out */
    weft_comm *comm;           /* of the place for which steps were asked for */
    weft_step **held;          /* handed out since the last bind, and those that are bound */
    int64_t held_count, held_room;
    weft_program **bound;
    int bound_count;
};

static void release(void *value)
{
    weft_step_free(value);
    weft_free(value);
}

weft_step_cache *weft_step_cache_create(void)
{
    weft_step_cache *c = weft_alloc(sizeof *c);
    if (c)
        c->cache = weft_program_cache_create(max_bytes, release);
    if (c && !c->cache) {
        weft_free(c);
        return NULL;
    }
    return c;
}

void weft_step_cache_free(weft_step_cache *c)
{
    if (!c)
        return;
    weft_program_cache_free(c->cache);
    weft_free(c->held);
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

static weft_program_key key_of(const weft_graph *whole, const weft_optimizer_config *o,
                               const weft_place_of_run *place)
{
    const weft_pass_switches *passes = place->passes ? place->passes : &weft_pass_defaults;
    const weft_slices *slices = place->slices;
    const double numbers[] = {o->beta1,
                              o->beta2,
                              o->eps,
                              o->weight_decay,
                              o->clip_norm,
                              o->decay_all,
                              o->ema_decay,
                              o->discriminator.lr,
                              o->discriminator.beta1,
                              o->discriminator.beta2,
                              o->discriminator.weight_decay,
                              o->discriminator.clip_norm,
                              place->profile,
                              place->kind,
                              place->told,
                              place->zero,
                              place->own,
                              place->away_states,
                              (double)place->room,
                              place->no_overlap,
                              slices ? slices->kind : -1,
                              slices ? (double)slices->time : 0,
                              slices ? (double)slices->space : 0,
                              slices ? (double)slices->lift_time : 0,
                              slices ? (double)slices->lift_space : 0,
                              slices ? (double)slices->heads : 0,
                              slices ? (double)slices->chunks : 0,
                              (double)place->bulletin};
    weft_program_key key = {.graph = weft_graph_hash(whole),
                            .options = XXH3_64bits(passes, sizeof *passes),
                            .mesh = place->mesh,
                            .index = weft_place_rank(place)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        key.options = mix_number(key.options, numbers[i]);
    for (int i = 0; i < place->recompute_count; i++)
        key.options = mix_text(key.options, place->recompute[i]);
    for (int64_t i = 0; place->fates && i < place->fates->count; i++)
        key.options = weft_seed_mix(weft_seed_mix(key.options, place->fates->row[i].key),
                                    place->fates->row[i].fate);
    if (place->away)
        key.options = mix_text(key.options, place->away);
    key.options = mix_text(key.options, place->backend->name);
    if (place->pipe) {
        key.options = mix_text(key.options, place->pipe->schedule);
        key.options = mix_number(key.options, place->pipe->stages);
    }
    return key;
}

/* What a planned step keeps beside tensors. */
static int64_t bytes_of(const weft_step *step)
{
    int64_t bytes = weft_graph_bytes(step->whole);
    if (step->graph != step->whole)
        bytes += weft_graph_bytes(step->graph);
    if (step->program)
        bytes += weft_program_own_bytes(step->program);
    for (int i = 0; step->pipe && i < step->pipe->owns; i++) {
        const weft_pipe_stage *own = &step->pipe->own[i];
        bytes += weft_graph_bytes(own->whole);
        for (int k = 0; k < WEFT_PIPE_KINDS; k++)
            if (own->program[k])
                bytes += weft_graph_bytes(own->graph[k]) + weft_program_own_bytes(own->program[k]);
    }
    return bytes;
}

static weft_status plan(weft_step_cache *c, const weft_program_key *key, weft_graph *whole,
                        const weft_optimizer_config *optimizer, const weft_place_of_run *place,
                        weft_step **step)
{
    weft_step *made = weft_alloc(sizeof *made);
    if (!made) {
        weft_graph_free(whole);
        return weft_fail(WEFT_E_MEMORY, "out of memory for a step");
    }
    const weft_status_code status = weft_step_plan(whole, optimizer, place, made);
    if (status != WEFT_OK) {
        weft_free(made);
        return status;
    }
    *step = made;
    return weft_program_cache_put(c->cache, key, made, bytes_of(made));
}

weft_status weft_step_cache_get(weft_step_cache *c, weft_graph *whole,
                                const weft_optimizer_config *optimizer,
                                const weft_place_of_run *place, weft_step **step)
{
    if (!whole)
        return weft_fail(WEFT_E_MEMORY, "out of memory for a graph");
    const weft_program_key key = key_of(whole, optimizer, place);
    weft_status_code status =
        weft_grow((void **)&c->held, c->held_count, &c->held_room, sizeof *c->held);
    weft_step *found = status == WEFT_OK ? weft_program_cache_take(c->cache, &key) : NULL;
    if (status != WEFT_OK || found)
        weft_graph_free(whole);
    else
        status = plan(c, &key, whole, optimizer, place, &found);
    if (status != WEFT_OK)
        return status;
    c->comm = place->comm;
    c->held[c->held_count++] = found;
    *step = found;
    return WEFT_OK;
}

/* Lets go of all that are not among `steps`. */
static void keep_only(weft_step_cache *c, weft_step *const *steps, int count)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < c->held_count; i++) {
        bool stays = false;
        for (int k = 0; k < count; k++)
            stays = stays || steps[k] == c->held[i];
        if (stays)
            c->held[kept++] = c->held[i];
        else
            weft_program_cache_drop(c->cache, c->held[i]);
    }
    c->held_count = kept;
}

static bool bound_already(const weft_step_cache *c, weft_program *const *programs, int count)
{
    for (int i = 0; i < count && count == c->bound_count; i++)
        if (c->bound[i] != programs[i])
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
    weft_group *group = NULL;
    int programs = 0;
    for (int i = 0; i < count; i++)
        programs += weft_step_programs(steps[i], NULL);
    weft_program **program = weft_alloc((programs + 1) * (int64_t)sizeof *program);
    if (!program)
        return weft_fail(WEFT_E_MEMORY, "out of memory for %d programs", programs);
    for (int i = 0, at = 0; i < count; i++)
        at += weft_step_programs(steps[i], program + at);
    if (bound_already(c, program, programs)) {
        weft_free(program);
        return WEFT_OK;
    }
    weft_step_cache_unbind(c);
    keep_only(c, steps, count);
    weft_free(c->bound);
    c->bound = program;
    for (int i = 0; i < count; i++)
        if (!steps[i]->pipe)
            WEFT_TRY(weft_store_init(store, steps[i]->graph, seed));
    if (c->comm)
        WEFT_TRY(weft_comm_world(c->comm, &group));
    WEFT_TRY(weft_programs_bind(c->bound, programs, store, group));
    c->bound_count = programs;
    return WEFT_OK;
}

int64_t weft_step_cache_bytes(const weft_step_cache *c)
{
    return weft_programs_bytes(c->bound, c->bound_count);
}

int64_t weft_step_cache_kept(const weft_step_cache *c)
{
    return weft_program_cache_count(c->cache).bytes;
}

void weft_step_cache_counts(const weft_step_cache *c, int64_t *made, int64_t *found)
{
    const weft_program_cache_counts counts = weft_program_cache_count(c->cache);
    *made = counts.added;
    *found = counts.found;
}
