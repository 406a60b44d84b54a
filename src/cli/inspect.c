/* weft inspect: what a model or a run costs, before anything is allocated. */
#include "cli/inspect_file.h"
#include "cli/inspect_run.h"
#include "cli/parallel_option.h"
#include "cli/plan_models.h"
#include "cli/verb.h"

#include "base/compare.h"
#include "base/fs.h"
#include "base/log.h"
#include "format/safetensors.h"
#include "model/dialect.h"
#include "model/model.h"
#include "pass/passes.h"
#include "runtime/runtime.h"
#include "train/optimizer.h"
#include "train/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct request {
    const weft_args *args;
    weft_model_size video;  /* pixels, or latents with --latents */
    weft_model autoencoder; /* beside a denoiser; family NULL: there is none */
    bool latents, train, print, pipeline;
    const char *const *recompute;
    int recompute_count;
    weft_mesh mesh;
    weft_slices slices;
} request;

static const weft_option options[] = {
    {"--batch", "N", "1", "samples in a step (of all ranks together)"},
    {"--frames", "N", "81", "frames of the video that the autoencoder takes (Wan: 1 + 4 n)"},
    {"--height", "N", "480", "rows of the video"},
    {"--width", "N", "832", "columns of the video"},
    {"--text", "N", "512", "text tokens per sample"},
    {"--tensors", NULL, NULL,
     "model: only list the parameters, a line each: name, type and sizes, "
     "as \"proj_out.bias f32 64\""},
    {"--latents", NULL, NULL,
     "frames, height and width are given in latents (a DiT sees 1/4, 1/8, 1/8 of the video)"},
    {"--train", NULL, NULL,
     "a whole training step: forward, backward, AdamW with clipping and EMA"},
    {"--recompute", "PATTERN", NULL,
     "make what matches (scope or op, '*' any text) again in the backward", .repeated = true},
    {"--slices", "SPEC", "",
     "model: slices of layers whose groups do not see each other, as of weft generate"},
    {"--mesh", "AXES", "",
     "as rank 0 of a mesh sees it, e.g. dp=2,tp=4: axes as in a config of weft train"},
    {"--rank", "N", "0",
     "of graph CONFIG: as that rank of the mesh; with --set backend=virtual it is also set up as "
     "for a run"},
    {"--backend", "NAME", "cpu",
     "whose kernels: cpu, ref, or virtual, which also tells how long a modelled GPU runs"},
    {"--top", "N", "8",
     "list the N kinds of nodes with the most FLOPs and the N largest buffers at the peak"},
    {"--graph", NULL, NULL,
     "print the graph, one node a line; of graph CONFIG also where collectives start and are "
     "waited for"},
    {"--cluster", "SPEC", NULL,
     "of graph CONFIG: seconds of a step by a profile of weft profile --out, or a cluster"},
    {"--passes", NULL, NULL, "of graph CONFIG: print what each pass changed"},
    {"--json", NULL, NULL, "print the figures as one JSON object"},
};

/* ---- the graph ----------------------------------------------------------------------------- */

/* The video's size as the model sees it: in pixels, or in latents. Those of a denoiser are of the
 * autoencoder beside it in its pipeline, else of the one that its family was published with. */
static weft_status model_size(const request *r, const weft_model *model, weft_model_size *size)
{
    weft_model beside;
    weft_grid grid;
    *size = r->video;
    if (model->family->role == WEFT_ROLE_TEXT_ENCODER) {
        const int64_t most =
            weft_model_text(model).length; /* every prompt is padded or cut to it */
        size->text = size->text < most ? size->text : most;
    }
    if (model->family->role != WEFT_ROLE_DENOISER || r->latents)
        return WEFT_OK;
    char rule[32];
    if (r->autoencoder.family) {
        grid = weft_model_grid(&r->autoencoder);
    } else {
        WEFT_TRY(weft_model_default(model->family->autoencoder, &beside));
        grid = weft_model_grid(&beside);
    }
    if (!weft_grid_takes_frames(&grid, size->frames))
        return weft_fail(WEFT_E_ARG, "--frames %lld: the latents are of %s frames",
                         (long long)size->frames, weft_grid_rule(&grid, rule));
    if (size->height % grid.factor[1] || size->width % grid.factor[2])
        return weft_fail(WEFT_E_ARG,
                         "--height %lld --width %lld: the latents are of multiples of %lldx%lld "
                         "pixels",
                         (long long)size->height, (long long)size->width, (long long)grid.factor[1],
                         (long long)grid.factor[2]);
    size->frames = weft_grid_latent_frames(&grid, size->frames);
    size->height /= grid.factor[1];
    size->width /= grid.factor[2];
    return WEFT_OK;
}

/* The rows of one port: as those of "batch.*" in a training step; the target lies beside them. */
static void add_port(weft_recipe *r, weft_recipe_row *row, const char *port,
                     const weft_recipe_row *batch)
{
    row[r->count] = *batch;
    row[r->count].pattern = port;
    row[r->count++].optional = true;
}

/* The family's own, where the model stands alone: its inputs have the names of ports. */
static weft_status recipe_of(const weft_model *model, const weft_mesh *mesh,
                             const weft_slices *slices, weft_recipe *out)
{
    const weft_family *f = model->family;
    weft_recipe composed;
    WEFT_TRY(weft_recipe_compose(f->recipe, f->recipes, mesh, &composed));
    weft_recipe_row *row =
        weft_alloc((int64_t)(composed.count + 1) * (f->ports + 1) * (int64_t)sizeof *row);
    weft_recipe r = {.name = composed.name, .row = row, .slices = slices};
    for (int i = 0; i < composed.count && row; i++) {
        const weft_recipe_row *from = &composed.row[i];
        if (strcmp(from->pattern, "batch.*")) {
            row[r.count++] = *from;
            continue;
        }
        for (int k = 0; k < f->ports; k++)
            add_port(&r, row, weft_port_name(f->port[k].port), from);
        add_port(&r, row, "target", from);
    }
    composed.name = NULL; /* is the other's now */
    weft_recipe_free(&composed);
    *out = r;
    return row ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for a recipe");
}

/* Of a model beside others in a pipeline: along axes that only the others know its ranks all do the
 * same. */
static weft_mesh own_axes(const weft_model *model, const weft_mesh *mesh)
{
    weft_mesh own = {0};
    for (int a = 0; a < mesh->axis_count; a++) {
        bool known = !strcmp(mesh->axis[a].name, "dp") || !strcmp(mesh->axis[a].name, "fsdp");
        for (int i = 0; i < model->family->recipes; i++)
            known |= !strcmp(model->family->recipe[i]->axis, mesh->axis[a].name);
        if (known)
            own.axis[own.axis_count++] = mesh->axis[a];
    }
    return own;
}

static void add_step(weft_graph *g)
{
    weft_optimizer_build(
        g, weft_graph_find(g, "model_loss"),
        &(weft_optimizer_config){
            .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .clip_norm = 1, .ema_decay = 0.999});
}

static weft_status build(const request *r, const weft_model *model, weft_graph **out,
                         int64_t *params, weft_cost *forward)
{
    weft_model_size size;
    weft_recipe recipe;
    const weft_mesh mesh = r->pipeline ? own_axes(model, &r->mesh) : r->mesh;
    WEFT_TRY(model_size(r, model, &size));
    WEFT_TRY(recipe_of(model, &mesh, &r->slices, &recipe));
    weft_graph *g = weft_graph_create();
    const weft_pass_setup setup = {.mesh = &mesh,
                                   .recipe = &recipe,
                                   .recompute = r->recompute,
                                   .recompute_count = r->train ? r->recompute_count : 0};
    weft_status_code status = WEFT_OK;
    if (!g)
        WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory for a graph"));
    weft_model_build(g, model, &size, true);
    WEFT_GO(weft_graph_check(g));
    *params = weft_graph_param_count(g);
    *forward = weft_graph_cost(g);
    if (r->train)
        weft_add_square_loss(g);
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL));
    if (r->train)
        add_step(g);
    WEFT_GO(weft_graph_check(g));
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL));
    *out = g;
    g = NULL;
out:
    weft_recipe_free(&recipe);
    weft_graph_free(g);
    return status;
}

/* ---- figures ------------------------------------------------------------------------------- */

typedef struct figures {
    const char *name;
    int64_t params, nodes, program_bytes;
    weft_cost forward, step;
    weft_memory_plan plan; /* borrowed */
    int64_t peak;          /* arena + weights and states */
    double seconds;
    double modelled; /* of one run on a virtual device; 0: not run */
} figures;

static void group_digits(int64_t n, char text[32])
{
    char plain[32];
    const int length = snprintf(plain, sizeof plain, "%lld", (long long)n);
    int at = 0;
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = plain[i];
    }
    text[at] = 0;
}

static void print_bytes(const char *what, int64_t bytes, const char *note)
{
    char text[32], exact[32];
    group_digits(bytes, exact);
    printf("  %-22s %12s  %s bytes%s%s\n", what, weft_format_bytes(bytes, text), exact,
           note[0] ? "; " : "", note);
}

static void print_figures(const request *r, const figures *f, const weft_model_size *size)
{
    char text[32];
    group_digits(f->params, text);
    printf("%s\n  %-22s %s\n", f->name, "parameters", text);
    printf("  %-22s %lld x %lld x %lld x %lld%s, %lld text tokens\n", "sample size",
           (long long)size->batch, (long long)size->frames, (long long)size->height,
           (long long)size->width,
           r->latents || size->frames != r->video.frames ? " (latents)" : "",
           (long long)size->text);
    printf("  %-22s %.4g forward", "FLOPs", (double)f->forward.flops);
    if (r->train)
        printf(", %.4g training step", (double)f->step.flops);
    printf("%s\n", weft_mesh_ranks(&r->mesh) > 1 ? " (this rank)" : "");
    if (f->step.wire_bytes)
        print_bytes("sent in a step", f->step.wire_bytes, "");
    group_digits(f->nodes, text);
    printf("  %-22s %s\n", "nodes", text);
    print_bytes(r->train ? "weights and states" : "weights", f->plan.source_bytes,
                r->train ? "with optimizer moments and EMA" : "");
    print_bytes("activations", f->plan.arena_bytes, "the arena that a run reserves");
    print_bytes("  live at the peak", f->plan.live_bytes, "what no placement can beat");
    print_bytes("workspace", f->plan.workspace_bytes, "");
    print_bytes("inputs", f->plan.input_bytes, "");
    print_bytes("reserved by a program", f->program_bytes,
                "activations, workspace, inputs, collectives");
    print_bytes("predicted peak", f->peak, "that and the weights");
    printf("  %-22s %.2f s\n", "built and planned in", f->seconds);
    if (f->modelled > 0)
        printf("  %-22s %.4g s, modelled: kernels of a GPU, collectives left out\n",
               "one run takes", f->modelled);
}

typedef struct ranked {
    const char *name;
    int64_t amount, count;
    int32_t value;
} ranked;

static void insert(ranked *list, int limit, ranked item)
{
    int at = limit;
    while (at > 0 && list[at - 1].amount < item.amount) {
        if (at < limit)
            list[at] = list[at - 1];
        at--;
    }
    if (at < limit)
        list[at] = item;
}

static void print_top_ops(const weft_graph *g, int top)
{
    ranked ops[WEFT_OP_COUNT] = {0}, list[64] = {0};
    double total = 0;
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_op op = weft_graph_node(g, n)->op;
        ops[op].name = weft_op_get(op)->name;
        ops[op].amount += weft_node_cost(g, n).flops;
        ops[op].count++;
        total += (double)weft_node_cost(g, n).flops;
    }
    for (int op = 0; op < WEFT_OP_COUNT; op++)
        if (ops[op].amount)
            insert(list, top, ops[op]);
    printf("  FLOPs by kind of node\n");
    for (int i = 0; i < top && list[i].amount; i++)
        printf("    %-18s %6lld nodes  %10.4g  %5.1f %%\n", list[i].name, (long long)list[i].count,
               (double)list[i].amount, 100 * (double)list[i].amount / total);
}

/* The node at which most bytes are live, and the largest buffers there. */
static void print_top_buffers(const weft_graph *g, const weft_memory_plan *plan, int top)
{
    int64_t *change = weft_alloc((plan->node_count + 3) * (int64_t)sizeof *change), live = 0,
            most = -1;
    int32_t peak = 0;
    ranked list[64] = {0};
    if (!change)
        return;
    for (int32_t v = 0; v < plan->count; v++) {
        const weft_place *p = &plan->place[v];
        if (p->region != WEFT_REGION_ARENA || p->alias_of >= 0)
            continue;
        change[p->first] += p->bytes;
        change[p->last + 1] -= p->bytes;
    }
    for (int32_t n = 0; n <= plan->node_count; n++) {
        live += change[n];
        if (live > most)
            most = live, peak = n;
    }
    weft_free(change);
    for (int32_t v = 0; v < plan->count; v++) {
        const weft_place *p = &plan->place[v];
        if (p->region == WEFT_REGION_ARENA && p->alias_of < 0 && p->first <= peak &&
            peak <= p->last)
            insert(list, top, (ranked){.amount = p->bytes, .value = v});
    }
    const weft_node *at = peak < plan->node_count ? weft_graph_node(g, peak) : NULL;
    printf("  largest buffers at the peak (node %d%s%s)\n", (int)peak,
           at && at->scope[0] ? " of " : "", at ? at->scope : "");
    for (int i = 0; i < top && list[i].amount; i++) {
        const weft_node *node =
            weft_graph_node(g, weft_value_get(g, (weft_value){list[i].value})->node);
        char text[32];
        printf("    %12s  %%%d = %s%s%s%s\n", weft_format_bytes(list[i].amount, text),
               (int)list[i].value, weft_op_get(node->op)->name, node->scope[0] ? " of " : "",
               node->scope, node->backward ? " (backward)" : "");
    }
}

static weft_status print_json(const figures *f)
{
    json_t *json = json_pack(
        "{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "model", f->name,
        "parameters", (json_int_t)f->params, "flops_forward", (json_int_t)f->forward.flops,
        "flops_step", (json_int_t)f->step.flops, "wire_bytes", (json_int_t)f->step.wire_bytes,
        "nodes", (json_int_t)f->nodes, "weight_bytes", (json_int_t)f->plan.source_bytes,
        "arena_bytes", (json_int_t)f->plan.arena_bytes, "live_bytes",
        (json_int_t)f->plan.live_bytes, "workspace_bytes", (json_int_t)f->plan.workspace_bytes,
        "program_bytes", (json_int_t)f->program_bytes, "peak_bytes", (json_int_t)f->peak, "seconds",
        f->seconds);
    if (json && f->modelled > 0)
        json_object_set_new(json, "modelled_seconds", json_real(f->modelled));
    char *line = json ? weft_json_line(json) : NULL;
    json_decref(json);
    if (!line)
        return weft_fail(WEFT_E_MEMORY, "no memory for the figures");
    printf("%s\n", line);
    weft_free(line);
    return WEFT_OK;
}

/* ---- names ---------------------------------------------------------------------------------- */

/* The line of a tensor as a file has it, which holds items of a stack one by one. */
static const char *tensor_line(weft_arena *arena, const weft_value_info *v, int64_t item,
                               const weft_tensors *stored)
{
    const bool stack = weft_name_is_stack(v->name);
    char room[600];
    const char *name = v->name, *made = NULL;
    if (stack) {
        weft_stack_item(v->name, item, room, sizeof room);
        name = room;
    }
    const weft_stored_tensor *t = stored ? weft_tensors_find(stored, name) : NULL;
    weft_buf text = {0};
    weft_inspect_put_tensor(name, t ? weft_stored_type(t) : weft_dtype_name(v->dtype),
                            v->shape.rank - stack, v->shape.dim + stack, &text);
    if (text.data)
        made = weft_arena_strdup(arena, text.data);
    weft_buf_free(&text);
    return made;
}

/* Sorted by name; of a folder with weights the types are those of its files. */
static weft_status print_tensors(weft_graph *g, const weft_tensors *stored)
{
    int64_t count = 0, capacity = 0;
    const char **line = NULL;
    weft_arena *arena = weft_arena_create();
    weft_status_code status = arena ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "no memory for names");
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_PARAM)
            continue;
        const weft_value_info *v = weft_value_get(g, node->out[0]);
        const int64_t items = weft_name_is_stack(v->name) ? v->shape.dim[0] : 1;
        for (int64_t i = 0; i < items && status == WEFT_OK; i++) {
            WEFT_GO(weft_grow((void **)&line, count, &capacity, sizeof *line));
            line[count] = tensor_line(arena, v, i, stored);
            if (!line[count++])
                WEFT_GO(weft_fail(WEFT_E_MEMORY, "no memory for names"));
        }
    }
    if (status == WEFT_OK) {
        if (count)
            qsort(line, (size_t)count, sizeof *line, weft_compare_text);
        for (int64_t i = 0; i < count; i++)
            puts(line[i]);
    }
out:
    weft_arena_free(arena);
    weft_free(line);
    return status;
}

static weft_status list_tensors(const weft_model *model, const char *path)
{
    const weft_model_size size = weft_model_smallest(model);
    weft_tensors *stored = NULL;
    weft_graph *g = weft_graph_create();
    if (!g)
        return weft_fail(WEFT_E_MEMORY, "no memory for a graph");
    weft_model_build(g, model, &size, false);
    weft_status_code status = weft_graph_check(g);
    if (weft_path_is_dir(path) && weft_tensors_open(path, &stored) != WEFT_OK)
        stored = NULL; /* a folder without weights has names all the same */
    if (status == WEFT_OK)
        status = print_tensors(g, stored);
    weft_tensors_close(stored);
    weft_graph_free(g);
    return status;
}

/* ---- the verb ------------------------------------------------------------------------------ */

/* Runs the kernels' modelled times through the executor; nothing is computed. */
static weft_status run_virtual(const weft_graph *g, weft_program *program,
                               const weft_backend *backend, double *seconds)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    if (!backend->device->hollow || (mesh && mesh->axis_count && weft_mesh_ranks(mesh) > 1))
        return WEFT_OK;
    weft_store *store = weft_store_create_on(backend->device);
    weft_status_code status =
        store ? weft_store_init(store, g, 0) : weft_fail(WEFT_E_MEMORY, "no memory for a store");
    if (status == WEFT_OK)
        status = weft_program_bind(program, store, NULL);
    const double begin = weft_now();
    if (status == WEFT_OK)
        status = weft_program_run(program);
    *seconds = weft_now() - begin;
    weft_program_unbind(program);
    weft_store_free(store);
    return status;
}

static weft_status inspect_model(const request *r, const weft_model *model, const char *path)
{
    figures f = {0};
    weft_graph *g = NULL;
    weft_program *program = NULL;
    if (weft_args_flag(r->args, "--tensors"))
        return list_tensors(model, path);
    char name[512];
    int64_t top;
    weft_status_code status = WEFT_OK;
    const double begin = weft_now();
    WEFT_TRY(weft_args_i64(r->args, "--top", 0, 64, &top));
    const weft_backend *backend = weft_backend_find(weft_args_string(r->args, "--backend"));
    if (!backend)
        return weft_fail(WEFT_E_ARG, "--backend %s: there are %s",
                         weft_args_string(r->args, "--backend"), weft_backend_names());
    snprintf(name, sizeof name, "%s (%s)", weft_model_class(model), path);
    f.name = name;
    WEFT_GO(build(r, model, &g, &f.params, &f.forward));
    WEFT_GO(weft_program_compile(g, &(weft_program_options){.backend = backend}, &program));
    f.plan = *weft_program_plan(program);
    f.step = weft_graph_cost(g);
    f.nodes = weft_graph_node_count(g);
    f.program_bytes = weft_program_bytes(program);
    f.peak = f.program_bytes + f.plan.source_bytes;
    f.seconds = weft_now() - begin;
    WEFT_GO(run_virtual(g, program, backend, &f.modelled));
    if (weft_args_flag(r->args, "--json")) {
        status = print_json(&f);
    } else {
        weft_model_size size;
        WEFT_GO(model_size(r, model, &size));
        print_figures(r, &f, &size);
        if (top > 0) {
            print_top_ops(g, (int)top);
            print_top_buffers(g, &f.plan, (int)top);
        }
    }
    if (r->print) {
        weft_buf text = {0};
        weft_graph_print(g, &text);
        status = weft_buf_check(&text);
        if (status == WEFT_OK)
            fwrite(text.data, 1, (size_t)text.len, stdout);
        weft_buf_free(&text);
    }
out:
    weft_program_free(program);
    weft_graph_free(g);
    return status;
}

/* Configs are JSON; a file of anything else is one of weights. */
static bool is_weights(const char *path)
{
    return weft_path_exists(path) && !weft_path_is_dir(path) &&
           strcmp(weft_path_extension(path), "json") != 0;
}

/* A pipeline folder has its models in folders of their own, listed in model_index.json. */
static weft_status inspect_path(request *r, const char *path)
{
    weft_model model;
    bool any = false;
    char *index = weft_path_join(path, "model_index.json"), *folder;
    if (!index)
        return weft_fail(WEFT_E_MEMORY, "no memory for a path");
    const bool pipeline = weft_path_exists(index);
    weft_free(index);
    if (!strcmp(weft_path_extension(path), "yaml") || !strcmp(weft_path_extension(path), "yml"))
        return weft_fail(WEFT_E_ARG,
                         "%s: a model is a folder, a config.json or a file of weights; for a "
                         "config of weft train: weft inspect graph %s",
                         path, path);
    if (is_weights(path))
        return weft_inspect_file(path, weft_args_flag(r->args, "--tensors"));
    if (!pipeline) {
        WEFT_TRY(weft_model_open(path, &model));
        return inspect_model(r, &model, path);
    }
    r->pipeline = true;
    if (weft_model_open_in(path, WEFT_ROLE_AUTOENCODER, &folder, &r->autoencoder) == WEFT_OK)
        weft_free(folder);
    else
        r->autoencoder.family = NULL;
    for (int role = 0; role < WEFT_ROLE_COUNT; role++) {
        weft_status_code status = weft_model_open_in(path, (weft_role)role, &folder, &model);
        if (status == WEFT_OK) {
            any = true;
            status = inspect_model(r, &model, folder);
            weft_free(folder);
        } else if (status == WEFT_E_UNSUPPORTED) {
            printf("%s\n", weft_error_message());
        }
        if (status != WEFT_OK && status != WEFT_E_UNSUPPORTED && status != WEFT_E_NOT_FOUND)
            return status;
    }
    return any ? WEFT_OK
               : weft_fail(WEFT_E_NOT_FOUND,
                           "%s has a model_index.json but no model that weft knows beside it",
                           path);
}

/* What only one of the two does: an option that does nothing is a wrong one. */
static weft_status check_options(const weft_args *args, const char *word)
{
    static const struct {
        const char *option, *word;
    } only[] = {{"--tensors", "model"}, {"--latents", "model"}, {"--train", "model"},
                {"--text", "model"},    {"--top", "model"},     {"--json", "model"},
                {"--backend", "model"}, {"--cluster", "graph"}, {"--passes", "graph"},
                {"--set", "graph"},     {"--rank", "graph"}};
    for (size_t i = 0; i < sizeof only / sizeof *only; i++)
        if (weft_args_flag(args, only[i].option) && strcmp(only[i].word, word))
            return weft_fail(WEFT_E_ARG, "%s is an option of weft inspect %s, not of %s",
                             only[i].option, only[i].word, word);
    return WEFT_OK;
}

static weft_status run_inspect(const weft_args *args)
{
    int count;
    const char *const *words = weft_args_positional(args, &count);
    request r = {.args = args,
                 .latents = weft_args_flag(args, "--latents"),
                 .train = weft_args_flag(args, "--train"),
                 .print = weft_args_flag(args, "--graph"),
                 .slices = weft_slices_default};
    r.recompute = weft_args_list(args, "--recompute", &r.recompute_count);
    WEFT_TRY(weft_args_i64(args, "--batch", 1, 1 << 20, &r.video.batch));
    WEFT_TRY(weft_args_i64(args, "--frames", 1, 1 << 20, &r.video.frames));
    WEFT_TRY(weft_args_i64(args, "--height", 1, 1 << 20, &r.video.height));
    WEFT_TRY(weft_args_i64(args, "--width", 1, 1 << 20, &r.video.width));
    WEFT_TRY(weft_args_i64(args, "--text", 1, 1 << 20, &r.video.text));
    WEFT_TRY(weft_mesh_parse(weft_args_string(args, "--mesh"), &r.mesh));
    WEFT_TRY(weft_args_slices(args, &r.slices));
    const bool model = !strcmp(words[0], "model");
    if (!model && strcmp(words[0], "graph"))
        return weft_fail(WEFT_E_ARG, "weft inspect \"%s\": the first word must be graph or model",
                         words[0]);
    WEFT_TRY(check_options(args, words[0]));
    return model ? inspect_path(&r, words[1]) : weft_inspect_run(args, words[1]);
}

const weft_verb weft_verb_inspect = {
    .name = "inspect",
    .summary = "what a model costs: parameters, FLOPs, memory, its graph",
    .usage = "model PATH | graph CONFIG [options]",
    .details =
        "graph: reads a config of weft train and prints, for each of its stages, what a step of "
        "training costs on one rank:\n"
        "parameters, FLOPs, bytes sent, and the memory that the run reserves, exactly; with "
        "--graph also the graph,\n"
        "with --passes what each pass over it changed. --mesh, --batch, --frames, --height, "
        "--width and --recompute\n"
        "stand in for what the config says; a mesh is seen from rank 0, or that of --rank, and "
        "its other ranks need not be there.\n"
        "--rank with backend=virtual sets the rank up as a run would, store, programs, groups, "
        "exchanges, records, in no memory,\n"
        "and tells how long that took and what the process holds then.\n\n"
        "model: reads a diffusers folder (model_index.json with transformer/, vae/, "
        "text_encoder/), the folder of one model, a bare config.json, or the name of a published "
        "size (wan-1.3b, wan-14b, wan-vae); of a lone file of weights (safetensors, GGUF, torch's "
        ".pt) it tells the family, whose names it has, in which types, and which published size "
        "it is. Weights are neither needed nor allocated. Builds the graph for one video size, "
        "runs the passes, places every buffer, and prints:\n\n"
        "  parameters    elements of all weights, exactly\n"
        "  FLOPs         of a forward pass, and of a training step with --train (a multiply-add "
        "is two)\n"
        "  activations   the arena that a run reserves: the peak, exactly\n"
        "  predicted peak  arena, workspace of the kernels, inputs, and weights (with --train "
        "also AdamW's moments, the EMA)\n\n"
        "The bytes that `reserved by a program` says are the bytes that a run of this graph "
        "reserves. Exit code 0, or not 0 when the config is not understood or the size does not "
        "fit the model.",
    .examples =
        "weft inspect graph examples/vae.yaml\n"
        "weft inspect graph run.yaml --set parallel.tp=8 --set parallel.dp=128 --rank 777 --set "
        "backend=virtual\n"
        "weft inspect model Wan2.1-T2V-1.3B/transformer --frames 81 --height 480 --width 832\n"
        "weft inspect model config.json --train --recompute 'transformer.blocks.*'\n"
        "weft inspect model config.json --graph --top 0 --frames 5 --height 64 --width 64",
    .config = &weft_run_section,
    .options = options,
    .option_count = WEFT_COUNT(options),
    .min_positional = 2,
    .max_positional = 2,
    .run = run_inspect,
};
