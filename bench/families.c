/* bench/families [NAME]: forward pass and training step (forward, backward, AdamW) of every
 * family of bench/families.json. Each is followed by diffusers' module in PyTorch if
 * WEFT_PEER_PYTHON names a Python that has both. */
#include "../tests/model_of.h"
#include "base/json.h"
#include "base/log.h"
#include "exec/execute.h"
#include "graph/builder_helpers.h"
#include "train/graph/optimizer.h"

#include <math.h>
#include <stdio.h>

enum { RUNS = 5 };
static const char path[] = "bench/families.json";

static void die(weft_status_code status)
{
    if (status != WEFT_OK) {
        fprintf(stderr, "bench/families: %s\n", weft_error_message());
        exit(1);
    }
}

/* Masks and classes are 1, all else is normal. */
static void fill(weft_program *program, const weft_graph *g)
{
    for (int32_t n = 0; n < weft_graph_node_count(g); n++) {
        const weft_node *node = weft_graph_node(g, n);
        if (node->op != WEFT_OP_INPUT)
            continue;
        weft_tensor *t = weft_program_input(program, weft_value_get(g, node->out[0])->name);
        for (int64_t i = 0; i < weft_shape_count(&t->shape); i++)
            if (t->dtype == WEFT_I32)
                ((int32_t *)t->data)[i] = 1;
            else
                ((float *)t->data)[i] = t->shape.rank == 0
                                            ? INFINITY
                                            : weft_random_normal(1, WEFT_RNG_TEST, (uint64_t)i);
    }
}

/* Seconds of the best of some runs; FLOPs as the graph counts them. */
static double run(const weft_model *model, const weft_model_size *size, bool train, double *flops)
{
    static const weft_optimizer_config adamw = {
        .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .weight_decay = 0.01};
    weft_graph *g = weft_graph_create();
    weft_store *store = weft_store_create();
    weft_program *program;
    double best = INFINITY;
    weft_model_build(g, model, size, false);
    if (train) {
        const weft_value y = weft_graph_find(g, "prediction");
        const weft_value target = weft_input(g, "target", WEFT_F32, weft_value_get(g, y)->shape);
        weft_optimizer_build(
            g, weft_mean_all(g, weft_unary(g, WEFT_OP_SQUARE, weft_sub(g, y, target))), &adamw);
    }
    die(weft_graph_check(g));
    die(weft_store_init(store, g, 1));
    die(weft_program_compile(g, &(weft_program_options){0}, &program));
    die(weft_program_bind(program, store, NULL));
    fill(program, g);
    if (train) {
        *(float *)weft_program_input(program, "optimizer.lr")->data = 1e-5f;
        *(float *)weft_program_input(program, "optimizer.step")->data = 1;
    }
    *flops = (double)weft_graph_cost(g).flops;
    for (int r = 0; r <= RUNS; r++) {
        const double start = weft_now();
        die(weft_program_run(program));
        if (r > 0)
            best = fmin(best, weft_now() - start);
    }
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    return best;
}

/* Returns false without a peer, or if the peer failed and printed its error. */
static bool run_peer(const char *name, double seconds[2])
{
    const char *python = getenv("WEFT_PEER_PYTHON");
    char command[600], line[256];
    int found = 0;
    if (!python || strlen(python) > 400)
        return false;
    snprintf(command, sizeof command, "'%s' -W ignore bench/peer_families.py %s", python, name);
    FILE *peer = popen(command, "r");
    while (peer && fgets(line, sizeof line, peer))
        if (!strncmp(line, name, strlen(name)))
            found = sscanf(line + strlen(name), "%lf %lf", &seconds[0], &seconds[1]);
    if (peer)
        pclose(peer);
    return found == 2;
}

/* Two cells: seconds of the peer (0: none) and their ratio to ours. */
static void print_peer(double theirs, double ours)
{
    if (theirs > 0)
        printf("| %.3f | %.2f ", theirs, theirs / ours);
    else
        printf("| - | - ");
}

int main(int argc, char **argv)
{
    json_t *list, *row;
    const char *name;
    die(weft_json_load(path, &list));
    printf(
        "| family | forward s | forward GFLOP/s | diffusers forward s | forward ratio | step s | "
        "step GFLOP/s | diffusers step s | step ratio |\n|---|---|---|---|---|---|---|---|---|\n");
    json_object_foreach(list, name, row)
    {
        const json_t *s = json_object_get(row, "size");
        weft_model model = {0};
        int64_t size[5];
        double flops[2];
        if (argc > 1 && strcmp(argv[1], name))
            continue;
        for (size_t i = 0; i < 5; i++)
            size[i] = json_integer_value(json_array_get(s, i));
        const weft_model_size of = {size[0], size[1], size[2], size[3], size[4]};
        die(weft_model_read(json_object_get(row, "config"), path, &model));
        const double forward = run(&model, &of, false, &flops[0]),
                     step = run(&model, &of, true, &flops[1]);
        double peer[2];
        const bool found = run_peer(name, peer);
        printf("| %s | %.3f | %.0f ", name, forward, flops[0] / forward / 1e9);
        print_peer(found ? peer[0] : 0, forward);
        printf("| %.3f | %.0f ", step, flops[1] / step / 1e9);
        print_peer(found ? peer[1] : 0, step);
        printf("|\n");
        fflush(stdout);
    }
    json_decref(list);
    return 0;
}
