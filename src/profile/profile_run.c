/* Measures weft's kernels at the shapes of a run or of a few small models.
 *
 * Programs run as in a training run, and each node is timed in its program, with the cache contents
 * that its neighbours leave. All programs run for several rounds. The result is the mean of the
 * fastest quarter of the rounds, which excludes temporary disturbances. */
#include "profile/profile_run.h"

#include "base/config_text.h"
#include "base/dtype.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/options/args.h"
#include "cli/options/backend_option.h"
#include "comm/comm_measure.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/measure.h"
#include "doctor/backend_choice.h"
#include "estimate/training/layout_search.h"
#include "exec/measure_products.h"
#include "graph/builder_helpers.h"
#include "kernel/cuda/cuda_backend.h"
#include "kernel/cuda/cuda_gpu.h"
#include "kernel/device.h"
#include "kernel/device_rates.h"
#include "model/model.h"
#include "plan/cluster/cluster_path.h"
#include "plan/cluster/profile_file.h"
#include "profile/profile_generation.h"
#include "profile/profile_work.h"
#include "train/estimate/memory_fit.h"
#include "train/estimate/meta_store.h"
#include "train/estimate/process_memory.h"
#include "train/latents/latent_cache_folder.h"
#include "train/pipeline/pp_layout.h"
#include "transform/numeric/mixed_precision.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROGRAMS = 96 };

/* ---- programs ------------------------------------------------------------------------------- */

/* Programs of a training stage in one layout, bound together as in training. */
typedef struct laid_out {
    weft_compiled_steps *cache;
    weft_store *store;
} laid_out;

typedef struct profile {
    weft_profiling all;
    weft_timed *program;
    int programs;
    laid_out *layout;
    int layouts;
    weft_exec_config exec; /* configuration of a single rank */
    bool bf16;             /* the next programs compute in bf16 */
    int64_t capacity;
    weft_device_type device;
    double host_bandwidth; /* bytes/s between a device with own memory and the host; else 0 */
} profile;

static weft_status too_many_programs(void)
{
    return weft_error(WEFT_MSG_PASS_UNSUPPORTED, WEFT_NOWHERE,
                      "the layouts and sizes need more than %d programs; profile fewer of them",
                      PROGRAMS);
}

/* Replaces a forward graph by its form in bf16. A step with an optimizer has its own pass. */
static weft_status narrow(weft_graph **graph)
{
    weft_graph *bf16;
    WEFT_TRY(weft_pass_mixed_precision(*graph, 0, &bf16));
    weft_graph_free(*graph);
    *graph = bf16;
    return WEFT_OK;
}

/* Takes ownership of `graph`. Trains its output "objective"; `optimizer` NULL: forward only.
 * p->bf16 decides the precision. */
static weft_status add_program(profile *p, weft_graph *graph, const char *name,
                               const weft_optimizer_config *optimizer, weft_timed **out)
{
    if (p->programs == PROGRAMS) {
        weft_graph_free(graph);
        return too_many_programs();
    }
    weft_exec_config exec = p->exec;
    char text[80];
    weft_timed *t = &p->program[p->programs];
    exec.bf16_compute = p->bf16;
    snprintf(text, sizeof text, "%s%s", name, p->bf16 ? ", bf16" : "");
    *t = (weft_timed){.store = weft_store_create_for(p->exec.backend)};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(t->store, "the profile"));
    if (p->bf16 && !optimizer)
        WEFT_GO(narrow(&graph));
    weft_graph *own = graph;
    graph = NULL; /* the step's */
    WEFT_GO(weft_step_make(own, optimizer, &exec, t->store, 1, &t->own));
    p->programs++;
    *out = t;
    return weft_timed_begin(t, t->own.graph, t->own.program, true, &p->all.prompts, text);
out:
    weft_graph_free(graph);
    weft_store_free(t->store);
    return status;
}

/* ---- timed models -------------------------------------------------------------------------- */

/* Small denoisers, two layers each, that are trained on such a machine. */
static const struct {
    const char *config;
    int64_t batch, frames, rows, text;
} table[] = {
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 4, "
     "\"attention_head_dim\": 24, \"ffn_dim\": 384, \"text_dim\": 128}",
     8, 4, 16, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 6, "
     "\"attention_head_dim\": 32, \"ffn_dim\": 768, \"text_dim\": 128}",
     16, 4, 8, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 4, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 1024, \"text_dim\": 128}",
     2, 4, 16, 40},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 6, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 1536, \"text_dim\": 256}",
     2, 5, 16, 64},
    {"{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 2, \"num_attention_heads\": 8, "
     "\"attention_head_dim\": 64, \"ffn_dim\": 2048, \"text_dim\": 256}",
     1, 4, 24, 64},
};

static const weft_optimizer_config optimizer = {.beta1 = 0.9,
                                                .beta2 = 0.95,
                                                .eps = 1e-8,
                                                .weight_decay = 0.01,
                                                .clip_norm = 1,
                                                .ema_decay = 0.999};

static weft_status build_model(const char *config, const weft_model_size *size, bool training,
                               weft_graph **out)
{
    weft_model model;
    json_error_t error;
    json_t *json = json_loads(config, 0, &error);
    if (!json)
        return weft_error(WEFT_MSG_INTERNAL_ERROR, WEFT_NOWHERE, "the table of profiled models: %s",
                          error.text);
    const weft_status_code status = weft_model_read(json, "profile", &model);
    json_decref(json);
    WEFT_TRY(status);
    weft_graph *g = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, &model, size, false);
    int count;
    const weft_named *output = weft_graph_outputs(g, &count);
    if (training && weft_graph_check(g) == WEFT_OK && count) {
        const weft_value y = output[count - 1].value;
        const weft_value target = weft_input(g, "target", WEFT_F32, weft_value_get(g, y)->shape);
        weft_output(g, "objective",
                    weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))));
    }
    *out = g;
    return WEFT_OK;
}

static weft_status add_table(profile *p)
{
    for (int i = 0; i < WEFT_COUNT(table); i++) {
        weft_graph *g;
        weft_timed *t;
        char name[64];
        const weft_model_size size = {table[i].batch, table[i].frames, table[i].rows, table[i].rows,
                                      table[i].text};
        snprintf(name, sizeof name, "small model %d, batch %" PRId64, i + 1, size.batch);
        WEFT_TRY(build_model(table[i].config, &size, true, &g));
        WEFT_TRY(add_program(p, g, name, &optimizer, &t));
    }
    return WEFT_OK;
}

/* ---- programs of a run --------------------------------------------------------------------- */

typedef struct run_to_time {
    profile *p;
    const char *path;
    weft_run run;
    weft_run_models models;
    weft_activation_plan *activations; /* of a layout, by stage; NULL: no memory.limit */
    weft_error_copy *unfit;            /* why the first layout does not fit memory.limit; or NULL */
} run_to_time;

/* Returns true if nodes without a measurement have more than 1% of the training stage's
 * estimate. */
static bool has_new(const run_to_time *r, const weft_stage_programs *s)
{
    weft_new_share share = {0};
    for (int i = 0; i < s->count; i++)
        weft_profiling_share(&r->p->all, s->bucket[i]->graph, &share);
    return share.fresh > 0.01 * share.all;
}

/* Binds a stage's programs and registers each for timing. */
/* `b`: the bucket of the program; NULL: the program of the update. */
static weft_status begin_timed(weft_timed *t, const weft_step *step, const weft_bucket *b,
                               int64_t parts, const weft_parallel *parallel,
                               const weft_profile_prompts *prompts)
{
    weft_buf name = {0};
    weft_status_code status = WEFT_OK;
    weft_parallel_name(parallel, &name);
    if (b)
        weft_buf_printf(&name, ", %" PRId64 " x %" PRId64 "x%" PRId64 "x%" PRId64, b->batch / parts,
                        b->frames, b->height, b->width);
    else
        weft_buf_printf(&name, ", update");
    WEFT_GO(weft_buf_check(&name));
    WEFT_GO(weft_timed_begin(t, step->graph, step->program, true, prompts, name.data));
out:
    weft_buf_free(&name);
    return status;
}

static weft_status time_train_stage(run_to_time *r, const weft_stage_programs *s, laid_out *own,
                                    const weft_train_stage *train_stage,
                                    const weft_parallel *parallel)
{
    profile *p = r->p;
    WEFT_TRY(weft_compiled_steps_bind(own->cache, s->bucket, s->count, own->store, 1));
    for (int i = 0; i < s->count; i++) {
        const weft_bucket *b = i < s->buckets ? weft_train_stage_bucket(train_stage, i) : NULL;
        if (p->programs == PROGRAMS)
            return too_many_programs();
        weft_timed *t = &p->program[p->programs++];
        *t = (weft_timed){0};
        WEFT_TRY(weft_profiling_record(&p->all, s->bucket[i]->graph));
        WEFT_TRY(begin_timed(t, s->bucket[i], b, s->parts, parallel, &p->all.prompts));
    }
    return WEFT_OK;
}

/* Adds the programs of a stage in this layout on all ranks, if any rank has new nodes. Skips a
 * layout that cannot be planned. */
static weft_status add_train_stage(run_to_time *r, const weft_train_stage *train_stage,
                                   const weft_parallel *parallel, const weft_exec_config *exec)
{
    profile *p = r->p;
    weft_stage_programs s = {0};
    if (p->layouts == PROGRAMS)
        return too_many_programs();
    laid_out *own = &p->layout[p->layouts];
    *own = (laid_out){weft_compiled_steps_create(), weft_store_create_for(p->exec.backend)};
    p->layouts++;
    WEFT_TRY(WEFT_ALLOCATED(own->cache && own->store, "the profile"));
    const weft_status_code planned =
        weft_stage_programs_plan(own->cache, &r->run, &r->models, train_stage, exec, &s);
    double asked[2] = {planned != WEFT_OK, planned == WEFT_OK && has_new(r, &s)};
    weft_status_code status = weft_comm_sum(p->all.comm, asked, 2);
    const bool timed = status == WEFT_OK && asked[0] == 0 && asked[1] > 0;
    if (timed)
        status = time_train_stage(r, &s, own, train_stage, parallel);
    else
        p->layouts--;
    if (!timed || status != WEFT_OK) {
        weft_compiled_steps_free(own->cache);
        weft_store_free(own->store);
        *own = (laid_out){0};
    }
    weft_stage_programs_free(&s);
    return status;
}

/* Bytes of memory.limit that programs and weights do not use. With a device that is apart they use
 * its memory: a run has other memory of the host than this process. */
static weft_status process_bytes(const run_to_time *r, const bool *encoded, int64_t *bytes)
{
    const weft_device *device = r->p->exec.backend->device;
    weft_process_memory process;
    if (weft_device_is_apart(device)) {
        *bytes = r->run.memory.limit - weft_process_unreported() - weft_device_usable(device);
        *bytes = *bytes > 0 ? *bytes : 0;
        return WEFT_OK;
    }
    WEFT_TRY(
        weft_process_memory_measure(&r->run, encoded, weft_comm_ranks(r->p->exec.comm), &process));
    *bytes = weft_process_memory_sum(process);
    return WEFT_OK;
}

/* Input of the choice of activations on this rank. */
typedef struct fit_input {
    weft_exec_config exec;
    weft_compiled_steps *cache;
    weft_store *store;
    weft_stored_activations stored;
    int64_t process; /* bytes */
} fit_input;

static void free_fit(fit_input *f)
{
    weft_stored_activations_free(&f->stored);
    weft_store_free(f->store);
    weft_compiled_steps_free(f->cache);
}

/* Not collective. The plan of the run folder is read, not written. */
static weft_status prepare_fit(run_to_time *r, const weft_exec_config *exec, fit_input *f)
{
    bool *encoded;
    *f = (fit_input){.exec = *exec, .cache = weft_compiled_steps_create()};
    WEFT_TRY(WEFT_ALLOCATED(f->cache, "the profile"));
    WEFT_TRY(WEFT_NEW(r->activations, r->run.train_stages.count, "the profile"));
    WEFT_TRY(WEFT_ARENA_NEW(r->p->all.arena, encoded, r->run.train_stages.count, "the profile"));
    if (weft_latents_encoded(&r->run, &r->models, encoded) == WEFT_OK) /* else no data yet */
        f->exec.encoded = encoded;
    WEFT_TRY(process_bytes(r, f->exec.encoded, &f->process));
    WEFT_TRY(weft_meta_store_create(&r->run, &r->models, &f->exec, f->cache, &f->store));
    return weft_stored_activations_load(r->run.out, &f->stored);
}

/* Collective. Chooses the activations that the layout keeps below memory.limit, as in training. */
static weft_status fit_memory(run_to_time *r, fit_input *f, weft_exec_config *exec)
{
    weft_buf message = {0};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_run_fit_memory(&r->run, &r->models, &f->exec, f->exec.comm, f->store, f->process,
                                &f->stored, r->activations, &message));
    exec->stage_activations = r->activations;
out:
    weft_buf_free(&message);
    return status;
}

/* Collective. *ok: `status` is of success on all ranks. Keeps the first error of this rank. */
static weft_status agree(run_to_time *r, weft_status_code status, bool *ok)
{
    double failed = status != WEFT_OK;
    if (status != WEFT_OK && !r->unfit)
        r->unfit = weft_error_save();
    WEFT_TRY(weft_comm_sum(r->p->all.comm, &failed, 1));
    *ok = failed == 0;
    return WEFT_OK;
}

/* *fits: memory.limit is met on all ranks, or not set. A pipeline's limit is of another rank. */
static weft_status try_fit(run_to_time *r, weft_exec_config *exec, bool *fits)
{
    fit_input f;
    *fits = true;
    if (!r->run.memory.limit || r->run.parallel.pp > 1)
        return WEFT_OK;
    /* no rank begins the collective choice if another cannot */
    weft_status_code status = WEFT_OK;
    WEFT_GO(agree(r, prepare_fit(r, exec, &f), fits));
    if (*fits)
        WEFT_GO(agree(r, fit_memory(r, &f, exec), fits));
out:
    free_fit(&f);
    return status;
}

static weft_status add_train_stages(run_to_time *r, const weft_parallel *parallel,
                                    weft_exec_config *exec)
{
    const weft_train_stage *train_stage = r->run.train_stages.item;
    bool fits;
    weft_status_code status = WEFT_OK;
    WEFT_GO(try_fit(r, exec, &fits));
    for (int64_t i = 0; i < r->run.train_stages.count && fits; i++)
        WEFT_GO(add_train_stage(r, &train_stage[i], parallel, exec));
out:
    weft_activation_plans_free(r->activations, r->run.train_stages.count);
    r->activations = NULL;
    return status;
}

/* Pipeline stages run the kernels of a microbatch on one rank and are timed there. With other axes
 * their shapes are estimated from the nearest measured ones. */
static weft_status add_layout(void *self, const weft_parallel *parallel)
{
    run_to_time *r = self;
    const bool alone = parallel->pp > 1 || weft_comm_ranks(r->p->all.comm) == 1;
    if (parallel->pp > 1 &&
        (parallel->pp != weft_comm_ranks(r->p->all.comm) || !parallel->microbatches))
        return WEFT_OK;
    r->run.parallel = *parallel;
    weft_exec_config exec = weft_exec_config_of(&r->run, &r->models);
    exec.backend = r->p->exec.backend;
    exec.profile = r->p->exec.profile;
    if (!alone) {
        exec.comm = r->p->all.comm;
        WEFT_TRY(weft_parallel_mesh(parallel, weft_comm_ranks(exec.comm), r->path, &exec.mesh));
    }
    return add_train_stages(r, parallel, &exec);
}

/* Adds the fewest layouts of the run that cover the nodes of all layouts, compiled as in weft
 * train. */
static weft_status add_layouts(run_to_time *r)
{
    /* `precision: auto` needs the nodes of both */
    const int precision = r->run.precision;
    static const int each[] = {WEFT_PRECISION_F32, WEFT_PRECISION_BF16, WEFT_PRECISION_TF32};
    for (int i = 0; i < WEFT_COUNT(each); i++) {
        r->run.precision = each[i];
        if (precision == each[i] ||
            (precision == WEFT_PRECISION_AUTO && each[i] != WEFT_PRECISION_TF32))
            WEFT_TRY(weft_layouts_visit(&r->run, &r->models, weft_comm_ranks(r->p->all.comm),
                                        add_layout, r));
    }
    if (r->p->programs)
        return WEFT_OK;
    return r->unfit ? weft_error_restore(r->unfit)
                    : weft_error_at(WEFT_E_CONFIG, WEFT_AT(.file = r->path));
}

static weft_status add_run(profile *p, const weft_args *args, const char *path)
{
    run_to_time r = {.p = p, .path = path};
    WEFT_TRY(weft_args_config(args, p->all.arena, path, &r.run));
    WEFT_TRY(weft_run_check(&r.run, path));
    WEFT_TRY(weft_pp_layout_check_used(&r.run.parallel, path));
    WEFT_TRY(weft_run_models_read(&r.run, path, &r.models));
    const weft_status_code status = add_layouts(&r);
    weft_free(r.unfit);
    return status;
}

/* ---- collectives --------------------------------------------------------------------------- */

/* Measures every op in groups of every size that divides the number of ranks. */
static weft_status measure_collectives(profile *p)
{
    static const int64_t sizes[] = {4 << 10, 64 << 10, 512 << 10, 4 << 20, 16 << 20};
    static const weft_comm_op ops[] = {WEFT_COMM_ALL_REDUCE,     WEFT_COMM_ALL_GATHER,
                                       WEFT_COMM_REDUCE_SCATTER, WEFT_COMM_ALL_TO_ALL,
                                       WEFT_COMM_RING_SHIFT,     WEFT_COMM_SEND};
    const int ranks = weft_comm_ranks(p->all.comm);
    const int64_t capacity = ranks * WEFT_COUNT(ops) * WEFT_COUNT(sizes);
    weft_rates *r = &p->all.rates;
    r->ranks = ranks;
    WEFT_TRY(WEFT_ARENA_NEW(p->all.arena, r->wire, capacity, "the rates"));
    for (int k = 2; k <= ranks; k++)
        for (int o = 0; o < WEFT_COUNT(ops) && ranks % k == 0; o++)
            for (int i = 0; i < WEFT_COUNT(sizes); i++) {
                const bool pairs = ops[o] == WEFT_COMM_SEND;
                weft_wire_rate *w = &r->wire[r->wires];
                *w = (weft_wire_rate){weft_comm_op_name(ops[o]), k, sizes[i], 0};
                if (pairs && k > 2) { /* same as between two ranks, at any location */
                    w->seconds = weft_rates_wire_seconds(r, w->op, 2, (double)w->bytes);
                    r->wires += w->seconds > 0;
                    continue;
                }
                WEFT_TRY(weft_comm_measure_exchange(p->all.comm, k, ops[o], sizes[i], &w->seconds));
                r->wires++;
            }
    return ranks > 1 ? weft_comm_measure_drag(p->all.comm, &r->slowdown) : WEFT_OK;
}

/* Measures the first use of memory by all ranks at the same time. */
static weft_status measure_touch(profile *p)
{
    WEFT_TRY(weft_comm_barrier(p->all.comm));
    return weft_measure_touch(64 << 20, &p->all.rates.touch);
}

/* ---- shapes for interpolation -------------------------------------------------------------- */

/* Adds one forward layer at several lengths; in bf16 with one batch size. */
static weft_status add_blocks(profile *p, int64_t hidden)
{
    static const int rows[] = {12, 16, 24, 32, 40, 48};
    for (int i = 0; i < WEFT_COUNT(rows); i++)
        for (int batch = 1; batch <= (p->bf16 ? 1 : 2); batch++) {
            char config[256], name[64];
            weft_graph *g;
            weft_timed *t;
            snprintf(config, sizeof config,
                     "{\"_class_name\": \"WanTransformer3DModel\", \"num_layers\": 1, "
                     "\"num_attention_heads\": %" PRId64
                     ", \"attention_head_dim\": 64, \"ffn_dim\": %" PRId64 ", "
                     "\"text_dim\": 128}",
                     hidden / 64, 4 * hidden);
            const weft_model_size size = {batch, 2, rows[i], rows[i], 16};
            snprintf(name, sizeof name, "block, %d x %d tokens", batch, rows[i] * rows[i] / 2);
            WEFT_TRY(build_model(config, &size, false, &g));
            WEFT_TRY(add_program(p, g, name, NULL, &t));
        }
    return WEFT_OK;
}

/* A 3x3x3 convolution of 32 channels, as in VAE tiles. In a scope, so that bf16 applies. */
static void build_tile(weft_graph *g, int64_t frames, int64_t height, int64_t width)
{
    enum { CHANNELS = 32 };
    const weft_value in[3] = {
        weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1, frames, height, width, CHANNELS)),
        weft_param(g, "w", WEFT_F32, WEFT_SHAPE(CHANNELS, CHANNELS, 3, 3, 3),
                   (weft_init){WEFT_INIT_NORMAL, 0.1}),
        weft_param(g, "b", WEFT_F32, WEFT_SHAPE(CHANNELS), (weft_init){WEFT_INIT_ZERO, 0})};
    weft_graph_push(g, "tile");
    const weft_value y = weft_emit(
        g, WEFT_OP_CONV3D, in, 3,
        &(weft_attr_conv){
            .stride = {1, 1, 1}, .before = {1, 1, 1}, .after = {1, 1, 1}, .kernel = {3, 3, 3}});
    weft_graph_pop(g);
    weft_output(g, "y", y);
}

/* Adds convolutions of several sizes; in bf16 with half of the lengths. */
static weft_status add_tiles(profile *p)
{
    static const int sides[][2] = {{16, 16}, {24, 24}, {32, 32}, {32, 48}, {48, 48}, {40, 24}};
    static const int lengths[] = {4, 8, 12, 16};
    for (int s = 0; s < WEFT_COUNT(sides); s++)
        for (int l = p->bf16; l < WEFT_COUNT(lengths); l += 1 + p->bf16) {
            weft_graph *g = weft_graph_create();
            weft_timed *t;
            char name[64];
            WEFT_TRY(WEFT_ALLOCATED(g, "a graph"));
            build_tile(g, lengths[l], sides[s][0], sides[s][1]);
            snprintf(name, sizeof name, "convolution, %d x %d x %d", lengths[l], sides[s][0],
                     sides[s][1]);
            WEFT_TRY(add_program(p, g, name, NULL, &t));
        }
    return WEFT_OK;
}

/* ---- results ------------------------------------------------------------------------------- */

/* FLOP/s of each kind of work in a type: of its fastest node, or of the product, attention or
 * convolution that is measured here. Returns the fastest. */
static weft_status rates_of_type(const profile *p, weft_dtype dtype, double rate[WEFT_WORK_MEMORY],
                                 double *peak)
{
    *peak = 0;
    for (int work = 0; work < WEFT_WORK_MEMORY; work++) {
        double gflops;
        WEFT_TRY(weft_measure_node(p->exec.backend, (weft_work)work, dtype, 0.15, &gflops));
        rate[work] = fmax(1e9 * gflops, p->all.best[dtype == WEFT_BF16][work]);
        *peak = fmax(*peak, rate[work]);
    }
    return WEFT_OK;
}

/* The name, memory and bandwidth of a device with memory of its own. */
static weft_status figures_of_device(profile *p)
{
    enum { COPIED = 256 << 20 };
    const weft_device *device = p->exec.backend->device;
    const weft_cuda_gpu *gpu;
    weft_device_type *d = &p->device;
    weft_device_rates rates;
    d->type = device->name;
    if (p->exec.backend == &weft_backend_cuda) {
        WEFT_TRY(weft_cuda_gpu_get(&gpu));
        d->type = gpu->name;
    }
    if (device->total)
        d->memory = device->total(device);
    WEFT_TRY(weft_device_rates_measure(device, COPIED, &rates));
    d->memory_bandwidth = rates.copy;
    p->host_bandwidth = fmin(rates.to_device, rates.to_host);
    p->all.rates.touch = 0; /* the memory of the device is mapped when it is reserved */
    return WEFT_OK;
}

/* Sets the peak FLOP/s of each type to its fastest kernel or product, and the rate of each kind of
 * work relative to this peak. */
static weft_status figures(profile *p, const weft_cluster *local)
{
    weft_device_type *d = &p->device;
    double rate[WEFT_WORK_MEMORY], bf16[WEFT_WORK_MEMORY];
    *d = local->device;
    WEFT_TRY(rates_of_type(p, WEFT_F32, rate, &d->flops));
    WEFT_TRY(rates_of_type(p, WEFT_BF16, bf16, &d->bf16_flops));
    d->gemm = rate[WEFT_WORK_GEMM] / d->flops;
    d->attention = rate[WEFT_WORK_ATTENTION] / d->flops;
    d->conv = rate[WEFT_WORK_CONV] / d->flops;
    d->bf16_gemm = bf16[WEFT_WORK_GEMM] / d->bf16_flops;
    d->bf16_attention = bf16[WEFT_WORK_ATTENTION] / d->bf16_flops;
    d->bf16_conv = bf16[WEFT_WORK_CONV] / d->bf16_flops;
    d->memory_fraction = 1;
    return weft_device_is_apart(p->exec.backend->device)
               ? figures_of_device(p)
               : weft_measure_memory(128 << 20, 0.3, &d->memory_bandwidth);
}

static weft_status write_json(const char *path, const profile *p)
{
    json_t *json = json_object();
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(json, "the profile"));
    WEFT_GO(weft_profile_to_json(&p->device, &p->all.rates, json));
    if (p->host_bandwidth > 0)
        json_object_set_new(json, "host_bandwidth", json_real(p->host_bandwidth));
    WEFT_GO(weft_json_save(path, json));
out:
    json_decref(json);
    return status;
}

static weft_status write_results(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const char *out = weft_args_string(args, "--out"), *yaml = weft_args_string(args, "--yaml");
    if (out)
        WEFT_TRY(write_json(out, p));
    if (!yaml)
        return WEFT_OK;
    weft_cluster c = *local;
    c.device = p->device;
    if (p->host_bandwidth > 0)
        c.host.bandwidth = p->host_bandwidth;
    weft_buf text = {0};
    weft_config_dump(&weft_cluster_section, &c, &text);
    return weft_file_write_buf(yaml, &text);
}

static weft_status print_report(const weft_args *args, const profile *p, const weft_cluster *local)
{
    const weft_device_type *d = &p->device;
    const weft_rates *r = &p->all.rates;
    if (p->host_bandwidth > 0)
        printf("\n%" PRId64
               " kinds of nodes on %s; memory %.1f GB/s, copies to the host %.1f GB/s\n",
               r->count, d->type, d->memory_bandwidth / 1e9, p->host_bandwidth / 1e9);
    else
        printf("\n%" PRId64 " kinds of nodes on %" PRId64 " threads; memory %.1f GB/s\n", r->count,
               r->threads, d->memory_bandwidth / 1e9);
    for (int bf16 = 0; bf16 < 2; bf16++) {
        const weft_dtype dtype = bf16 ? WEFT_BF16 : WEFT_F32;
        printf("%-4s products %.1f, attention %.1f, convolutions %.1f GFLOP/s\n",
               weft_dtype_name(dtype), weft_device_flops(d, WEFT_WORK_GEMM, dtype) / 1e9,
               weft_device_flops(d, WEFT_WORK_ATTENTION, dtype) / 1e9,
               weft_device_flops(d, WEFT_WORK_CONV, dtype) / 1e9);
    }
    if (r->ranks > 1)
        printf("%" PRId64 " ranks at a time; %" PRId64
               " collectives timed; kernels slow down by %.0f %% of the time of concurrent ones\n",
               r->ranks, r->wires, 100 * r->slowdown);
    return write_results(args, p, local);
}

static weft_status measure(profile *p, const weft_args *args, const char *path, int64_t hidden,
                           double seconds)
{
    weft_cluster local;
    const bool of_model = weft_args_flag(args, "--model");
    WEFT_TRY(weft_cluster_load(p->all.arena, "local", &local));
    p->all.local = &local.device;
    WEFT_TRY(measure_touch(p));
    WEFT_TRY(measure_collectives(p));
    WEFT_TRY(weft_profiling_open(&p->all, weft_args_string(args, "--compare")));
    if (path) {
        WEFT_TRY(add_run(p, args, path));
    } else if (of_model) {
        WEFT_TRY(weft_profile_generation(&p->all, args, seconds));
    } else {
        for (int bf16 = 0; bf16 < 2; bf16++) {
            p->bf16 = bf16;
            WEFT_TRY(add_table(p));
            WEFT_TRY(add_blocks(p, hidden));
            WEFT_TRY(add_tiles(p));
        }
    }
    WEFT_TRY(weft_profiling_run(&p->all, p->program, p->programs, seconds));
    for (int i = 0; i < p->programs; i++)
        WEFT_TRY(weft_profiling_take(&p->all, &p->program[i]));
    WEFT_TRY(weft_profiling_close(&p->all));
    WEFT_TRY(figures(p, &local));
    return weft_comm_rank(p->all.comm) == 0 ? print_report(args, p, &local) : WEFT_OK;
}

/* Frees everything that the measurements own. */
static void profile_free(profile *p)
{
    for (int i = 0; i < p->programs; i++)
        weft_timed_end(&p->program[i]);
    for (int i = 0; i < p->layouts; i++) {
        weft_compiled_steps_free(p->layout[i].cache);
        weft_store_free(p->layout[i].store);
    }
    weft_free(p->program);
    weft_free(p->layout);
    json_decref(p->all.known);
    weft_free(p->all.sample);
    weft_free(p->all.rates.program);
    weft_comm_free(p->all.comm);
    weft_arena_free(p->all.arena);
}

weft_status weft_profile_run(const weft_args *args, const char *path, int64_t hidden,
                             double seconds)
{
    profile p = {.all = {.arena = weft_arena_create(),
                         .known = json_object(),
                         .rates = {.threads = omp_get_max_threads()}},
                 .exec = {.mesh = {.axis_count = 1, .axis = {{"dp", 1}}},
                          .profile = true,
                          .no_overlap = true}};
    weft_status_code status = WEFT_OK;
    WEFT_GO(weft_args_i64(args, "--prompt-tokens", 0, 1 << 20, &p.all.prompts.tokens));
    p.program = weft_calloc(PROGRAMS, sizeof *p.program);
    p.layout = weft_calloc(PROGRAMS, sizeof *p.layout);
    WEFT_GO(WEFT_ALLOCATED(p.all.arena && p.program && p.layout && p.all.known, "the profile"));
    WEFT_GO(weft_args_backend(args, &p.exec.backend)); /* rejects backends without values */
    WEFT_GO(weft_comm_open_mpi(&p.all.comm));
    WEFT_GO(weft_backend_settle(weft_args_string(args, "--backend"), WEFT_PRODUCTS_F32, p.all.comm,
                                &p.exec.backend));
    WEFT_GO(
        weft_backend_settle(p.exec.backend->name, WEFT_PRODUCTS_BF16, p.all.comm, &p.exec.backend));
    WEFT_GO(measure(&p, args, path, hidden, seconds));
    WEFT_GO(weft_comm_barrier(p.all.comm)); /* ranks wait until rank 0 has written */
out:
    if (status != WEFT_OK && p.all.comm)
        weft_comm_abort(p.all.comm);
    profile_free(&p);
    return status;
}
