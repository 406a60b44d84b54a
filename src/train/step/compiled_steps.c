#include "train/step/compiled_steps.h"

#include "base/rng.h"
#include "exec/program_cache.h"
#include "graph/dump.h"

#include <string.h>
#include <xxhash.h>

/* bytes of unused graphs and programs that stay cached */
static const int64_t max_bytes = (int64_t)1 << 30;

struct weft_compiled_steps {
    /* weft_step pointers, each allocated separately because steps are lent out */
    weft_program_cache *cache;
    weft_comm *comm;  /* communicator of the last requested step */
    weft_step **held; /* steps that are bound or were lent out since the last bind */
    int64_t held_count, held_capacity;
    weft_program **bound;
    int bound_count;
};

static void release(void *value)
{
    weft_step_free(value);
    weft_free(value);
}

weft_compiled_steps *weft_compiled_steps_create(void)
{
    weft_compiled_steps *c = weft_alloc(sizeof *c);
    if (c)
        c->cache = weft_program_cache_create(max_bytes, release);
    if (c && !c->cache) {
        weft_free(c);
        return NULL;
    }
    return c;
}

void weft_compiled_steps_free(weft_compiled_steps *c)
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
                               const weft_exec_config *exec)
{
    const weft_pass_switches *passes = exec->passes ? exec->passes : &weft_pass_defaults;
    const weft_comm_overlap *overlap = exec->overlap;
    const double numbers[] = {o->beta1,
                              o->beta2,
                              o->eps,
                              o->weight_decay,
                              o->clip_norm,
                              o->decay_all,
                              o->ema_decay,
                              o->target_decay,
                              o->discriminator.lr,
                              o->discriminator.beta1,
                              o->discriminator.beta2,
                              o->discriminator.weight_decay,
                              o->discriminator.clip_norm,
                              o->fake.lr,
                              o->fake.beta1,
                              o->fake.beta2,
                              o->fake.weight_decay,
                              o->fake.clip_norm,
                              exec->profile,
                              exec->kind,
                              exec->reduced_axes,
                              exec->zero,
                              exec->own,
                              exec->offload_states,
                              (double)exec->prefetch_bytes,
                              exec->no_overlap,
                              overlap ? overlap->kind : -1,
                              overlap ? (double)overlap->time : 0,
                              overlap ? (double)overlap->space : 0,
                              overlap ? (double)overlap->lift_time : 0,
                              overlap ? (double)overlap->lift_space : 0,
                              overlap ? (double)overlap->heads : 0,
                              overlap ? (double)overlap->chunks : 0,
                              (double)exec->telemetry_floats};
    weft_program_key key = {.graph = weft_graph_hash(whole),
                            .options = XXH3_64bits(passes, sizeof *passes),
                            .mesh = exec->mesh,
                            .index = weft_allocation_rank(exec)};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        key.options = mix_number(key.options, numbers[i]);
    for (int i = 0; i < exec->recompute_count; i++)
        key.options = mix_text(key.options, exec->recompute[i]);
    for (int64_t i = 0; exec->activations && i < exec->activations->count; i++)
        key.options = weft_seed_mix(weft_seed_mix(key.options, exec->activations->row[i].key),
                                    exec->activations->row[i].policy);
    if (exec->offload_dir)
        key.options = mix_text(key.options, exec->offload_dir);
    key.options = mix_text(key.options, exec->backend->name);
    if (exec->pp) {
        key.options = mix_text(key.options, exec->pp->schedule);
        key.options = mix_number(key.options, exec->pp->pp_stages);
    }
    return key;
}

/* Bytes of a planned step without tensors. */
static int64_t bytes_of(const weft_step *step)
{
    int64_t bytes = weft_graph_bytes(step->whole);
    if (step->graph != step->whole)
        bytes += weft_graph_bytes(step->graph);
    if (step->program)
        bytes += weft_program_own_bytes(step->program);
    for (int i = 0; step->pp_step && i < step->pp_step->owns; i++) {
        const weft_pp_local_stage *own = &step->pp_step->own[i];
        bytes += weft_graph_bytes(own->whole);
        for (int k = 0; k < WEFT_PP_TASK_KINDS; k++)
            if (own->program[k])
                bytes += weft_graph_bytes(own->graph[k]) + weft_program_own_bytes(own->program[k]);
    }
    return bytes;
}

static weft_status plan(weft_compiled_steps *c, const weft_program_key *key, weft_graph *whole,
                        const weft_optimizer_config *optimizer, const weft_exec_config *exec,
                        weft_step **step)
{
    weft_step *made = weft_alloc(sizeof *made);
    if (!made) {
        weft_graph_free(whole);
        return weft_no_memory("a step");
    }
    const weft_status_code status = weft_step_plan(whole, optimizer, exec, made);
    if (status != WEFT_OK) {
        weft_free(made);
        return status;
    }
    *step = made;
    return weft_program_cache_put(c->cache, key, made, bytes_of(made));
}

weft_status weft_compiled_steps_get(weft_compiled_steps *c, weft_graph *whole,
                                    const weft_optimizer_config *optimizer,
                                    const weft_exec_config *exec, weft_step **step)
{
    WEFT_TRY(WEFT_ALLOCATED(whole, "a graph"));
    const weft_program_key key = key_of(whole, optimizer, exec);
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_grow((void **)&c->held, c->held_count, &c->held_capacity, sizeof *c->held));
    weft_step *found = weft_program_cache_take(c->cache, &key);
    if (!found) {
        WEFT_TRY(plan(c, &key, whole, optimizer, exec, &found));
        whole = NULL; /* the step's */
    }
    c->comm = exec->comm;
    c->held[c->held_count++] = found;
    *step = found;
out:
    weft_graph_free(whole);
    return status;
}

/* Returns all lent steps except `steps` to the cache. */
static void evict_others(weft_compiled_steps *c, weft_step *const *steps, int count)
{
    int64_t retained = 0;
    for (int64_t i = 0; i < c->held_count; i++) {
        bool stays = false;
        for (int k = 0; k < count; k++)
            stays = stays || steps[k] == c->held[i];
        if (stays)
            c->held[retained++] = c->held[i];
        else
            weft_program_cache_drop(c->cache, c->held[i]);
    }
    c->held_count = retained;
}

static bool bound_already(const weft_compiled_steps *c, weft_program *const *programs, int count)
{
    for (int i = 0; i < count && count == c->bound_count; i++)
        if (c->bound[i] != programs[i])
            return false;
    return count == c->bound_count;
}

void weft_compiled_steps_unbind(weft_compiled_steps *c)
{
    for (int i = 0; i < c->bound_count; i++)
        weft_program_unbind(c->bound[i]);
    c->bound_count = 0;
}

weft_status weft_compiled_steps_bind(weft_compiled_steps *c, weft_step *const *steps, int count,
                                     weft_store *store, uint64_t seed)
{
    weft_group *group = NULL;
    int programs = 0;
    for (int i = 0; i < count; i++)
        programs += weft_step_programs(steps[i], NULL);
    weft_program **program;
    WEFT_TRY(WEFT_NEW(program, programs + 1, "%d programs", programs));
    for (int i = 0, at = 0; i < count; i++)
        at += weft_step_programs(steps[i], program + at);
    if (bound_already(c, program, programs)) {
        weft_free(program);
        return WEFT_OK;
    }
    weft_compiled_steps_unbind(c);
    evict_others(c, steps, count);
    weft_free(c->bound);
    c->bound = program;
    for (int i = 0; i < count; i++)
        if (!steps[i]->pp_step)
            WEFT_TRY(weft_store_init(store, steps[i]->graph, seed));
    if (c->comm)
        WEFT_TRY(weft_comm_world(c->comm, &group));
    WEFT_TRY(weft_programs_bind(c->bound, programs, store, group));
    c->bound_count = programs;
    return WEFT_OK;
}

int64_t weft_compiled_steps_bytes(const weft_compiled_steps *c)
{
    return weft_programs_bytes(c->bound, c->bound_count);
}

int64_t weft_compiled_steps_program_bytes(const weft_compiled_steps *c)
{
    return weft_program_cache_count(c->cache).bytes;
}

void weft_compiled_steps_counts(const weft_compiled_steps *c, int64_t *made, int64_t *found)
{
    const weft_program_cache_counts counts = weft_program_cache_count(c->cache);
    *made = counts.added;
    *found = counts.found;
}
