#include "train/step/initial_weights.h"

#include "base/log.h"
#include "exec/store/tensor_copy.h"
#include "exec/store/weights.h"
#include "model/key_mapping.h"
#include "train/graph/run_networks.h"
#include "train/step/stage_programs.h"

#include <stdio.h>
#include <string.h>

static bool in_scope(const weft_tensor *tensor, const char *scope)
{
    const size_t length = strlen(scope);
    return !strncmp(tensor->name, scope, length) && tensor->name[length] == '.';
}

/* One rank has all parameters unsharded in its store, in memory of the host. */
static bool initialises_in_place(const weft_exec_config *exec)
{
    return weft_mesh_ranks(&exec->mesh) == 1 && !weft_device_is_apart(exec->backend->device);
}

/* Whether the model is initialised by its family, and not loaded from files. */
static bool is_initialised(const weft_model *model, const weft_run_model *from)
{
    return !from->weights[0] && model->family->begin;
}

/* Initialises the parameters in a model's scope with the family's own method. With several ranks,
 * unsharded parameters are initialised in a separate store, and each rank copies its shards. The
 * method may keep drawn values. */
static weft_status begin_model(weft_train_context *c, const weft_graph *whole, const char *scope,
                               const char *prefix, const weft_model *model)
{
    weft_status_code status = WEFT_OK;
    const bool alone = initialises_in_place(&c->exec);
    WEFT_TRY(weft_store_draw_deferred(c->store, prefix));
    weft_store *store = alone ? c->store : weft_store_create();
    weft_weight *weight = NULL;
    int64_t count = 0, most = 0;
    if (store && !alone)
        WEFT_GO(weft_store_init(store, whole, (uint64_t)c->run->seed));
    most = store ? weft_store_count(store) : 0;
    weight = weft_calloc(most + 1, sizeof *weight);
    WEFT_GO(WEFT_ALLOCATED(store && weight, "%" PRId64 " weights", most));
    for (int64_t i = 0; i < most; i++) {
        const weft_tensor *tensor = weft_store_at(store, i);
        if (in_scope(tensor, scope))
            weight[count++] =
                (weft_weight){tensor->name + strlen(scope) + 1, tensor->shape, tensor->data};
    }
    model->family->begin(model->config, weight, count, (uint64_t)c->run->seed);
    for (int64_t i = 0; i < most && !alone; i++) {
        const weft_tensor *from = weft_store_at(store, i),
                          *to = weft_store_find(c->store, from->name);
        if (!to || !in_scope(from, scope))
            continue;
        const weft_box all = weft_box_whole(&from->shape);
        WEFT_GO(weft_tensor_put(to, &all, from->data, from->dtype, NULL));
    }
out:
    if (!alone)
        weft_store_free(store);
    weft_free(weight);
    return status;
}

static weft_status begin_one(weft_train_context *c, const weft_graph *whole, const char *scope,
                             const weft_model *model, const weft_run_model *from, bool partial)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s.", scope);
    if (!from->weights[0])
        return is_initialised(model, from) ? begin_model(c, whole, scope, prefix, model) : WEFT_OK;
    weft_tensors *file;
    WEFT_TRY(weft_key_mapping_open(model->family, whole, prefix, from->weights, &file));
    return weft_weights_load(c->store, whole, prefix, file, partial);
}

/* Loads or initialises the trained model. Files of its weights have no LoRA parameters. */
static weft_status begin_trained(weft_train_context *c, const weft_graph *whole)
{
    const weft_model *model = weft_run_trained(&c->models);
    const weft_run_model *from = weft_run_trained_from(c->run, &c->models);
    weft_graph *base = NULL;
    if (from->lora.rank)
        WEFT_TRY(weft_run_base(&c->models, &base));
    const weft_status_code status =
        begin_one(c, base ? base : whole, model->family->scope, model, from, false);
    weft_graph_free(base);
    return status;
}

/* Loads a network that has LoRA matrices: its files have none. */
static weft_status begin_base(weft_train_context *c, const char *scope, const weft_model *model,
                              const weft_run_model *from)
{
    const weft_model_size size = weft_model_smallest(model);
    weft_graph *base = weft_graph_create();
    WEFT_TRY(WEFT_ALLOCATED(base, "a graph"));
    weft_graph_push(base, "%s", scope);
    weft_model_build(base, model, &size, false);
    weft_graph_pop(base);
    weft_status_code status = weft_graph_check(base);
    if (status == WEFT_OK)
        status = begin_one(c, base, scope, model, from, false);
    weft_graph_free(base);
    return status;
}

/* Loads the first weights of the other networks of a distillation or a preference. */
static weft_status begin_networks(weft_train_context *c, const weft_graph *whole)
{
    const char *scope[WEFT_RUN_NETWORKS];
    const int count = weft_run_networks(c->run, scope);
    weft_run_model from = *weft_run_trained_from(c->run, &c->models);
    for (int i = 0; i < count; i++) {
        const weft_model *model = weft_run_network_model(&c->models, scope[i]);
        from.weights = weft_run_network_weights(c->run, scope[i]);
        WEFT_TRY(from.lora.rank ? begin_base(c, scope[i], model, &from)
                                : begin_one(c, whole, scope[i], model, &from, false));
    }
    return WEFT_OK;
}

/* A text encoder's files may contain other tensors. */
weft_status weft_initial_weights(weft_train_context *c, const weft_graph *whole)
{
    const weft_run_models *m = &c->models;
    WEFT_TRY(begin_trained(c, whole));
    WEFT_TRY(begin_networks(c, whole));
    if (!weft_run_trains_denoiser(m))
        WEFT_TRY(weft_loss_nets_begin(c->run, whole, c->store));
    if (weft_run_uses_identity(m))
        WEFT_TRY(
            begin_one(c, whole, m->identity.family->scope, &m->identity, &c->run->identity, false));
    for (int r = 0; r < m->text.encoders && !m->text_precomputed; r++) {
        const weft_text_encoder *encoder = &m->text.encoder[r];
        WEFT_TRY(begin_one(c, whole, encoder->row->encoder, &encoder->model,
                           weft_run_text(c->run, r), true));
    }
    WEFT_TRY(weft_store_draw_deferred(c->store, ""));
    return weft_step_begin_averages(c->store);
}

int64_t weft_initial_weights_bytes(const weft_run *run, const weft_run_models *m,
                                   const weft_exec_config *exec, const weft_graph *whole)
{
    bool any = is_initialised(weft_run_trained(m), weft_run_trained_from(run, m));
    if (weft_run_uses_identity(m))
        any = any || is_initialised(&m->identity, &run->identity);
    for (int r = 0; r < m->text.encoders && !m->text_precomputed; r++)
        any = any || is_initialised(&m->text.encoder[r].model, weft_run_text(run, r));
    return any && !initialises_in_place(exec)
               ? weft_graph_param_count(whole) * (int64_t)sizeof(float)
               : 0;
}

static void count_overlap(const weft_stage_programs *s, int64_t made[WEFT_MADE])
{
    for (int i = 0; i < s->buckets; i++)
        for (int k = 0; k < WEFT_MADE; k++)
            made[k] += s->bucket[i]->made[k];
}

/* Warns of comm overlap keys that no step can use. This is not an error, because the same config
 * may be used with another number of ranks. */
static void warn_idle_overlap(const weft_train_context *c, const int64_t made[WEFT_MADE])
{
    const weft_model *model =
        weft_run_trains_denoiser(&c->models) ? &c->models.denoiser : &c->models.autoencoder;
    weft_comm_overlap overlap = c->run->parallel.overlap;
    overlap.explicit_keys = weft_comm_overlap_explicit_keys(&overlap);
    if (c->is_rank0 && weft_comm_overlap_check(&overlap, made, "parallel.comm_overlap.",
                                               weft_model_class(model)) != WEFT_OK)
        weft_warn_error(WEFT_MSG_CONFIG_UNUSUAL, "the key has no effect");
}

weft_status weft_initial_weights_fill(weft_train_context *c)
{
    const weft_train_stage *train_stages = c->run->train_stages.item;
    int64_t made[WEFT_MADE] = {0};
    weft_stage_programs s = {0};
    weft_status_code status = WEFT_OK;
    for (int64_t i = 0; i < c->run->train_stages.count; i++) {
        weft_stage_programs_free(&s);
        WEFT_GO(
            weft_stage_programs_plan(c->steps, c->run, &c->models, &train_stages[i], &c->exec, &s));
        WEFT_GO(weft_steps_fill(s.bucket, s.count, &c->exec, c->store, (uint64_t)c->run->seed));
        count_overlap(&s, made);
    }
    warn_idle_overlap(c, made);
    if (!c->meta)
        WEFT_GO(weft_initial_weights(c, s.bucket[0]->whole));
out:
    weft_memory_trim();
    weft_stage_programs_free(&s);
    return status;
}
