#include "inspect/inspect_model.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "estimate/plan_models.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "graph/dump.h"
#include "inspect/inspect_file.h"
#include "inspect/inspect_names.h"
#include "inspect/roofline_print.h"
#include "kernel/registry/backend.h"
#include "model/model.h"
#include "train/config/train_config.h"
#include "train/graph/optimizer.h"
#include "transform/passes.h"

#include <stdio.h>
#include <string.h>

/* A request, and the pipeline that the model is part of. */
typedef struct request {
    const weft_inspect_model_options *o;
    weft_model autoencoder; /* autoencoder of the denoiser's pipeline; family NULL: none */
    bool pipeline;
} request;

/* ---- the graph ----------------------------------------------------------------------------- */

/* Returns the frames of a video whose number is not given: the family's, or one near `frames` that
 * the autoencoder takes. */
static int64_t default_frames(const weft_family *family, const weft_grid *grid, int64_t frames)
{
    return family->frames ? family->frames : weft_grid_nearest_frames(grid, frames);
}

/* Returns the tokens of a text whose number is not given: as in the pipeline, at most `text`. */
static int64_t default_text(const weft_model *model, int64_t text)
{
    const weft_family *f = model->family;
    for (int i = 0; i < f->text_encoders; i++) {
        const weft_text_encoder_row *row = &f->text_encoder[i];
        if (row->text == WEFT_PORT_TEXT && row->length && row->length < text &&
            (!row->fits || row->fits(model->config)))
            return row->length;
    }
    return text;
}

/* Sets *size to the video's size in the model's unit: pixels or latents. A denoiser uses the
 * autoencoder of its pipeline, else the one its family was published with. */
static weft_status model_size(const request *r, const weft_model *model, weft_model_size *size)
{
    weft_model autoencoder;
    weft_grid grid;
    *size = r->o->video;
    if (model->family->role == WEFT_ROLE_TEXT_ENCODER) {
        const int64_t most =
            weft_model_text(model).length; /* prompts are padded or truncated to this length */
        size->text = size->text < most ? size->text : most;
    }
    if (model->family->role != WEFT_ROLE_DENOISER || r->o->latents)
        return WEFT_OK;
    char rule[32];
    if (!r->o->text_given)
        size->text = default_text(model, size->text);
    if (r->autoencoder.family) {
        grid = weft_model_grid(&r->autoencoder);
    } else {
        WEFT_TRY(weft_model_default_autoencoder(model, &autoencoder));
        grid = weft_model_grid(&autoencoder);
    }
    if (!r->o->frames_given)
        size->frames = default_frames(model->family, &grid, size->frames);
    if (!weft_grid_takes_frames(&grid, size->frames))
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          WEFT_AT(.key = "--frames", WEFT_NUMBER(size->frames)),
                          "%" PRId64 " frames do not fit the autoencoder; it needs %s frames",
                          size->frames, weft_grid_rule(&grid, rule));
    if (size->height % grid.factor[1] || size->width % grid.factor[2])
        return weft_error(WEFT_MSG_VIDEO_SIZE,
                          size->height % grid.factor[1]
                              ? WEFT_AT(.key = "--height", WEFT_NUMBER(size->height))
                              : WEFT_AT(.key = "--width", WEFT_NUMBER(size->width)),
                          "%" PRId64 "x%" PRId64 " (height x width) is not a multiple of %" PRId64
                          "x%" PRId64 " pixels, the "
                          "blocks of the autoencoder",
                          size->height, size->width, grid.factor[1], grid.factor[2]);
    /* whole patches, as pipelines pad the latents (CogVideoX 1.5) */
    const int64_t patch = weft_model_grid(model).factor[0];
    size->frames = (weft_grid_latent_frames(&grid, size->frames) + patch - 1) / patch * patch;
    size->height /= grid.factor[1];
    size->width /= grid.factor[2];
    return WEFT_OK;
}

/* Adds the rows of one port, equal to the rows of "batch.*" in a training step. The target uses the
 * same rows. */
static void add_port(weft_recipe *r, weft_recipe_row *row, const char *port,
                     const weft_recipe_row *batch)
{
    row[r->count] = *batch;
    row[r->count].pattern = port;
    row[r->count++].optional = true;
}

/* Builds the recipe of the model alone, in which the inputs have the names of ports. */
static weft_status recipe_of(const weft_model *model, const weft_mesh *mesh,
                             const weft_comm_overlap *overlap, weft_recipe *out)
{
    const weft_family *f = model->family;
    weft_recipe composed;
    WEFT_TRY(weft_recipe_compose(f->recipe, f->recipes, mesh, &composed));
    weft_recipe_row *row = weft_calloc((int64_t)(composed.count + 1) * (f->ports + 1), sizeof *row);
    weft_recipe r = {.name = composed.name, .row = row, .overlap = overlap};
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
    composed.name = NULL; /* owned by `r` */
    weft_recipe_free(&composed);
    *out = r;
    return WEFT_ALLOCATED(row, "a recipe");
}

/* Returns the axes that apply to this model of a pipeline. Along all other axes its ranks compute
 * the same. */
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
    const weft_mesh mesh = r->pipeline ? own_axes(model, &r->o->mesh) : r->o->mesh;
    WEFT_TRY(model_size(r, model, &size));
    WEFT_TRY(recipe_of(model, &mesh, &r->o->overlap, &recipe));
    weft_graph *g = weft_graph_create();
    const weft_pass_setup setup = {.mesh = &mesh,
                                   .recipe = &recipe,
                                   .bf16_compute = r->o->bf16,
                                   .recompute = r->o->recompute,
                                   .recompute_count = r->o->train ? r->o->recompute_count : 0,
                                   .pointwise = r->o->roofline != NULL};
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(g, "a graph"));
    weft_model_build(g, model, &size, true);
    WEFT_GO(weft_graph_check(g));
    *params = weft_graph_param_count(g);
    *forward = weft_graph_cost(g);
    if (r->o->train)
        weft_add_square_loss(g);
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL));
    if (r->o->train)
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
    double simulated; /* simulated seconds of one run on a virtual device; 0: not run */
} figures;

static void group_digits(int64_t n, char text[32])
{
    char plain[32];
    const int length = snprintf(plain, sizeof plain, "%" PRId64, n);
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
    printf("  %-22s %" PRId64 " x %" PRId64 " x %" PRId64 " x %" PRId64 "%s, %" PRId64
           " text tokens\n",
           "sample size", size->batch, size->frames, size->height, size->width,
           r->o->latents || size->frames != r->o->video.frames ? " (latents)" : "", size->text);
    printf("  %-22s %.4g forward", "FLOPs", (double)f->forward.flops);
    if (r->o->train)
        printf(", %.4g training step", (double)f->step.flops);
    printf("%s\n", weft_mesh_ranks(&r->o->mesh) > 1 ? " (this rank)" : "");
    if (f->step.wire_bytes)
        print_bytes("sent in a step", f->step.wire_bytes, "");
    group_digits(f->nodes, text);
    printf("  %-22s %s\n", "nodes", text);
    print_bytes(r->o->train ? "weights and states" : "weights", f->plan.source_bytes,
                r->o->train ? "with optimizer moments and EMA" : "");
    print_bytes("activations", f->plan.arena_bytes, "the arena that a run reserves");
    print_bytes("  live at the peak", f->plan.live_bytes, "lower bound of any placement");
    print_bytes("workspace", f->plan.workspace_bytes, "");
    print_bytes("inputs", f->plan.input_bytes, "");
    print_bytes("reserved by a program", f->program_bytes,
                "activations, workspace, inputs, collectives");
    print_bytes("predicted peak", f->peak, "that and the weights");
    printf("  %-22s %.2f s\n", "built and planned in", f->seconds);
    if (f->simulated > 0)
        printf("  %-22s %.4g s, simulated: kernels of a GPU, without collectives\n",
               "one run takes", f->simulated);
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
        printf("    %-18s %6" PRId64 " nodes  %10.4g  %5.1f %%\n", list[i].name, list[i].count,
               (double)list[i].amount, 100 * (double)list[i].amount / total);
}

/* Prints the node with the peak of live bytes, and the largest buffers at that node. */
static void print_top_buffers(const weft_graph *g, const weft_memory_plan *plan, int top)
{
    int64_t *change = weft_calloc(plan->node_count + 3, sizeof *change), live = 0, most = -1;
    int32_t peak = 0;
    ranked list[64] = {0};
    if (!change)
        return;
    for (int32_t v = 0; v < plan->count; v++) {
        const weft_allocation *p = &plan->allocation[v];
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
        const weft_allocation *p = &plan->allocation[v];
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
    if (json && f->simulated > 0)
        json_object_set_new(json, "simulated_seconds", json_real(f->simulated));
    char *line = json ? weft_json_line(json) : NULL;
    json_decref(json);
    WEFT_TRY(WEFT_ALLOCATED(line, "the figures"));
    printf("%s\n", line);
    weft_free(line);
    return WEFT_OK;
}

/* ---- one model ---------------------------------------------------------------------------- */

/* Runs the kernels' simulated times through the executor without computing. */
static weft_status run_virtual(const weft_graph *g, weft_program *program,
                               const weft_backend *backend, double *seconds)
{
    const weft_mesh *mesh = weft_graph_mesh(g);
    if (!backend->device->meta || (mesh && mesh->axis_count && weft_mesh_ranks(mesh) > 1))
        return WEFT_OK;
    weft_store *store = weft_store_create_on(backend->device);
    weft_status_code status = WEFT_OK;
    WEFT_TRY(WEFT_ALLOCATED(store, "a store"));
    WEFT_GO(weft_store_init(store, g, 0));
    WEFT_GO(weft_program_bind(program, store, NULL));
    const double begin = weft_now();
    WEFT_GO(weft_program_run(program));
    *seconds = weft_now() - begin;
out:
    weft_program_unbind(program);
    weft_store_free(store);
    return status;
}

/* Prints the roofline of the program. A model's ranks share its FLOPs evenly. */
static weft_status print_roofline(const request *r, const figures *f, const weft_program *program)
{
    weft_roofline_list list;
    weft_arena *arena = weft_arena_create();
    const double forward = (double)f->forward.flops / weft_mesh_ranks(&r->o->mesh);
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(arena, "the launches"));
    WEFT_GO(weft_roofline_begin(arena, r->o->roofline, &list));
    WEFT_GO(weft_roofline_add(&list, program, f->name, r->o->train ? 3 * forward : forward));
    WEFT_GO(weft_roofline_print(&list, r->o->json));
out:
    weft_arena_free(arena);
    return status;
}

static weft_status print_graph(const weft_graph *g)
{
    weft_buf text = {0};
    weft_status_code status = WEFT_OK;
    weft_graph_print(g, &text);
    WEFT_GO(weft_buf_check(&text));
    fwrite(text.data, 1, (size_t)text.len, stdout);
out:
    weft_buf_free(&text);
    return status;
}

static weft_status inspect_model(const request *r, const weft_model *model, const char *path)
{
    figures f = {0};
    weft_graph *g = NULL;
    weft_program *program = NULL;
    if (r->o->tensors)
        return weft_inspect_names(model, path);
    char name[512];
    weft_status_code status = WEFT_OK;
    const double begin = weft_now();
    const weft_backend *backend = weft_backend_find(r->o->backend);
    if (!backend)
        return weft_error(
            WEFT_MSG_OPTION_INVALID, WEFT_AT(.key = "--backend", .value = r->o->backend),
            "unknown backend '%.80s'; use one of %s", r->o->backend, weft_backend_names());
    if (!r->o->roofline) /* needs no GPU */
        WEFT_TRY(weft_backend_check(backend));
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
    WEFT_GO(run_virtual(g, program, backend, &f.simulated));
    if (r->o->roofline) {
        WEFT_GO(print_roofline(r, &f, program));
    } else if (r->o->json) {
        WEFT_GO(print_json(&f));
    } else {
        weft_model_size size;
        WEFT_GO(model_size(r, model, &size));
        print_figures(r, &f, &size);
        if (r->o->top > 0) {
            print_top_ops(g, r->o->top);
            print_top_buffers(g, &f.plan, r->o->top);
        }
    }
    if (r->o->graph)
        WEFT_GO(print_graph(g));
out:
    weft_program_free(program);
    weft_graph_free(g);
    return status;
}

/* Configs are JSON; any other file is a weights file. */
static bool is_weights(const char *path)
{
    return weft_path_exists(path) && !weft_path_is_dir(path) &&
           strcmp(weft_path_extension(path), "json") != 0;
}

/* A pipeline folder has one folder per model. */
weft_status weft_inspect_model(const weft_inspect_model_options *options, const char *path)
{
    request own = {.o = options}, *r = &own;
    weft_model model;
    bool any = false;
    char *folder;
    if (!strcmp(weft_path_extension(path), "yaml") || !strcmp(weft_path_extension(path), "yml"))
        return weft_error(WEFT_MSG_ARGUMENT_INVALID, WEFT_AT(.file = path),
                          "a model is a folder, a config.json or a file of weights; for a config "
                          "of weft train use `weft inspect graph %s`",
                          path);
    if (is_weights(path))
        return weft_inspect_file(path, r->o->tensors);
    if (!weft_model_is_pipeline(path)) {
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
        if (status == WEFT_E_UNSUPPORTED)
            printf("%s\n", weft_error_message());
        if (status == WEFT_E_UNSUPPORTED || status == WEFT_E_NOT_FOUND)
            continue;
        WEFT_TRY(status);
        any = true;
        status = inspect_model(r, &model, folder);
        weft_free(folder);
        if (status != WEFT_E_UNSUPPORTED && status != WEFT_E_NOT_FOUND)
            WEFT_TRY(status);
    }
    return any ? WEFT_OK
               : weft_error(WEFT_MSG_MODEL_NOT_FOUND, WEFT_AT(.file = path),
                            "the folder has several models, but none is one that weft implements");
}
