/* The event simulator replays the traces of ranks: a denoising step of STDiT3 with layers on four
 * simulated ranks of two machines. The executed time is within 5 % of the simulated time. */
#include "../../model_of.h"
#include "../../ranks_of.h"
#include "base/fs.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/comm_fake.h"
#include "comm/comm_world.h"
#include "comm/link_model.h"
#include "exec/execute.h"
#include "exec/trace/run_trace.h"
#include "exec/trace/timeline_file.h"
#include "exec/trace/timeline_merge.h"
#include "kernel/virtual/virtual.h"
#include "plan/simulate/simulator.h"
#include "transform/passes.h"
#include "transform/sharding/mesh_config.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4 };

typedef struct job {
    weft_comm *comm;
    int rank;
    bool waits; /* for every exchange where it starts */
    const char *axis;
    double now;
    weft_timeline timeline;
} job;

static weft_graph *build(const weft_model *model)
{
    weft_graph *g = weft_graph_create();
    const weft_model_size size = {1, 16, 16, 16, 20};
    weft_ports p = weft_ports_none();
    static const weft_port in[] = {WEFT_PORT_LATENTS, WEFT_PORT_TIMESTEP, WEFT_PORT_TEXT};
    for (int i = 0; i < WEFT_COUNT(in); i++)
        p.at[in[i]] = weft_model_input(g, model, &size, in[i], "batch.");
    weft_graph_push(g, "transformer");
    weft_model_call(g, model, (weft_call){WEFT_CALL_FORWARD, WEFT_STREAM_ALONE}, false, &p);
    weft_graph_pop(g);
    weft_output(g, "sample", p.at[WEFT_PORT_PREDICTION]);
    return g;
}

/* In the first run ranks compare their collectives; the second run counts. */
static weft_status run_twice(job *j, weft_program *program)
{
    for (int turn = 0; turn < 2; turn++) {
        double all[RANKS];
        WEFT_TRY(weft_comm_all_gather(j->comm, &j->now, sizeof j->now, all));
        for (int r = 0; r < RANKS; r++)
            j->now = fmax(j->now, all[r]);
        j->timeline.origin = j->now;
        WEFT_TRY(weft_program_run(program));
    }
    return weft_timeline_add_program(&j->timeline, program);
}

static weft_status_code play(void *user)
{
    job *j = user;
    const weft_model model =
        model_of("{\"_class_name\":\"STDiT3\",\"depth\":2,\"hidden_size\":128,\"num_heads\":4}");
    const weft_virtual_rates rates = {
        .flops = 60e9, .bytes = 8e9, .launch = 1e-6, .pack = 1e-7, .scale = 1, .clock = &j->now};
    const weft_comm_overlap slices = weft_comm_overlap_default;
    weft_mesh mesh = {.axis_count = 1, .axis = {{"", RANKS}}};
    snprintf(mesh.axis[0].name, sizeof mesh.axis[0].name, "%s", j->axis);
    weft_recipe recipe = {0};
    weft_backend *backend = NULL;
    weft_store *store = NULL;
    weft_program *program = NULL;
    weft_group *world;
    weft_graph *g = build(&model);
    weft_status_code status = WEFT_OK;
    j->timeline = weft_timeline_open(j->rank, RANKS);
    WEFT_GO(weft_backend_virtual_create(&rates, &backend));
    WEFT_GO(weft_recipe_compose(model.family->recipe, model.family->recipes, &mesh, &recipe));
    recipe.overlap = j->waits ? NULL : &slices;
    const weft_pass_setup setup = {.mesh = &mesh, .rank = j->rank, .recipe = &recipe};
    const weft_program_options options = {
        .backend = backend, .mesh = &mesh, .profile = true, .no_overlap = j->waits, .threads = 1};
    WEFT_GO(weft_passes_run(WEFT_PASS_WHOLE, &setup, false, &g, NULL));
    WEFT_GO(weft_passes_run(WEFT_PASS_RANK, &setup, false, &g, NULL));
    store = weft_store_create_on(backend->device);
    WEFT_GO(weft_store_init(store, g, 1));
    WEFT_GO(weft_program_compile(g, &options, &program));
    WEFT_GO(weft_comm_world(j->comm, &world));
    WEFT_GO(weft_program_bind(program, store, world));
    WEFT_GO(run_twice(j, program));
out:
    weft_program_free(program);
    weft_store_free(store);
    weft_graph_free(g);
    weft_backend_virtual_free(backend);
    weft_recipe_free(&recipe);
    return status;
}

static void execute(bool waits, const char *axis, const char *links, weft_timeline *timeline)
{
    job all[RANKS];
    weft_comm *comm[RANKS];
    weft_link_model model;
    cr_assert_eq(weft_link_model_parse(links, &model), WEFT_OK, "%s", weft_error_message());
    model.clocked = true;
    cr_assert_eq(weft_comm_open_threads_linked(RANKS, &model, comm), WEFT_OK);
    for (int r = 0; r < RANKS; r++) {
        all[r] = (job){.comm = comm[r], .rank = r, .waits = waits, .axis = axis};
    }
    run_ranks(axis, RANKS, comm, play, all, sizeof *all);
    for (int r = 0; r < RANKS; r++) {
        timeline[r] = all[r].timeline;
    }
}

/* Two machines of two devices, each with a port of its own. */
static const char cluster_yaml[] =
    "name: two\nnodes: 2\ndevices: 2\n"
    "device: {type: core, memory: 8GiB, flops: 60e9, memory_bandwidth: 8e9}\n"
    "link: {bandwidth: 12.5e9, latency: 1e-6}\nhost: {bandwidth: 8e9, latency: 1e-6}\n"
    "nics:\n  - {switch: wire, bandwidth: 1.25e8, latency: 2e-6, distance: [0, 1]}\n"
    "  - {switch: wire, bandwidth: 1.25e8, latency: 2e-6, distance: [1, 0]}\n"
    "switches: [{name: wire}]\n";
static const char links[] = "1 Gbit/s, 5 us, 2 per node; inside 100 Gbit/s, 2 us";

static double simulate(const weft_trace *trace)
{
    weft_arena *arena = weft_arena_create();
    weft_cluster c;
    weft_simulation sim = {0};
    char path[] = "/tmp/weft-replay-XXXXXX.yaml";
    const int fd = mkstemps(path, 5);
    cr_assert(fd >= 0);
    fclose(fdopen(fd, "w"));
    cr_assert_eq(weft_file_write_atomic(path, cluster_yaml, (int64_t)strlen(cluster_yaml)),
                 WEFT_OK);
    cr_assert_eq(weft_cluster_load(arena, path, &c), WEFT_OK, "%s", weft_error_message());
    remove(path);
    cr_assert_eq(weft_simulate(trace, &c, &sim), WEFT_OK, "%s", weft_error_message());
    const double seconds = sim.seconds;
    weft_simulation_free(&sim);
    weft_arena_free(arena);
    return seconds;
}

static void replay(bool waits, const char *axis)
{
    weft_timeline timeline[RANKS];
    weft_trace trace;
    double executed, kernels = 0;
    execute(waits, axis, links, timeline);
    cr_assert_eq(weft_timelines_join(timeline, RANKS, &trace, &executed), WEFT_OK, "%s",
                 weft_error_message());
    for (int64_t i = 0; i < timeline[0].trace.step_count; i++)
        if (timeline[0].trace.step[i].stream == WEFT_STREAM_COMPUTE && !timeline[0].note[i].waits)
            kernels += timeline[0].end[i] - timeline[0].start[i];
    const double simulated = simulate(&trace);
    cr_log_info("%s%s: executed %.6g s, simulated %.6g s, kernels %.6g s", axis,
                waits ? ", every exchange waited for" : "", executed, simulated, kernels);
    cr_expect(fabs(executed / simulated - 1) <= 0.05, "executed %.6g s, simulated %.6g s", executed,
              simulated);
    /* communication must be a large share of the step, or the comparison shows nothing */
    cr_expect(executed > (waits ? 1.1 : 1) * kernels, "kernels %.6g s of %.6g s", kernels,
              executed);
    weft_trace_free(&trace);
    for (int r = 0; r < RANKS; r++)
        weft_timeline_free(&timeline[r]);
}

Test(replay, slices_are_as_simulated)
{
    replay(false, "cp");
}

Test(replay, whole_layers_are_as_simulated)
{
    replay(true, "cp");
}

Test(replay, exchanges_of_heads_are_as_simulated)
{
    replay(true, "heads");
}

Test(replay, files_bring_the_same_trace)
{
    weft_timeline timeline[RANKS], again[RANKS];
    weft_trace trace[2];
    double executed[2];
    char path[64];
    execute(false, "cp", links, timeline);
    snprintf(path, sizeof path, "/tmp/weft-replay-%d.json", (int)getpid());
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(weft_timeline_write(&timeline[r], path), WEFT_OK);
        cr_assert_eq(weft_timeline_read(path, &again[RANKS - 1 - r]), WEFT_OK, "%s",
                     weft_error_message());
    }
    remove(path);
    cr_assert_eq(weft_timelines_join(timeline, RANKS, &trace[0], &executed[0]), WEFT_OK);
    cr_assert_eq(weft_timelines_join(again, RANKS, &trace[1], &executed[1]), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(trace[0].step_count, trace[1].step_count);
    cr_expect_float_eq(executed[0], executed[1], 1e-8);
    cr_expect_float_eq(simulate(&trace[0]), simulate(&trace[1]), 1e-6);
    for (int i = 0; i < 2; i++)
        weft_trace_free(&trace[i]);
    for (int r = 0; r < RANKS; r++)
        weft_timeline_free(&again[r]);
    for (int r = 0; r < RANKS; r++)
        weft_timeline_free(&timeline[r]);
}

/* The join fails and names this rank. */
static void refused(const weft_timeline *timeline, int count, int rank)
{
    weft_trace trace;
    double executed;
    cr_expect_eq(weft_timelines_join(timeline, count, &trace, &executed), WEFT_E_FORMAT);
    cr_expect_eq(weft_error_class(), WEFT_MSG_FORMAT_DAMAGED, "%s", weft_error_message());
    cr_expect(weft_error_fields()->has_rank && weft_error_fields()->rank == rank, "%s",
              weft_error_message());
}

Test(replay, what_is_not_of_one_run_is_refused)
{
    weft_timeline timeline[RANKS], mixed[RANKS];
    execute(false, "cp", links, timeline);
    refused(timeline, RANKS - 1, 0);
    memcpy(mixed, timeline, sizeof mixed);
    mixed[1] = timeline[0];
    refused(mixed, RANKS, 0);
    mixed[1] = timeline[1];
    mixed[1].trace.step_count /= 2; /* it ends before the others */
    refused(mixed, RANKS, 0);
    for (int r = 0; r < RANKS; r++)
        weft_timeline_free(&timeline[r]);
}

/* A timeline of one rank with these steps. */
static weft_status read_steps(const char *steps, weft_timeline *timeline)
{
    char path[] = "/tmp/weft-replay-XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    fprintf(file,
            "{\"weft\": {\"format\": \"weft.timeline/1\", \"rank\": 0, \"ranks\": 1, \"names\": "
            "[\"a\"], \"groups\": [[0]], \"steps\": [%s]}}",
            steps);
    fclose(file);
    const weft_status_code status = weft_timeline_read(path, timeline);
    remove(path);
    return status;
}

Test(replay, what_waits_for_the_step_it_belongs_to_waits_for_nothing)
{
    weft_timeline timeline = {0};
    weft_trace trace = {0};
    double executed;
    cr_assert_eq(read_steps("[0, 0, 3, 0, 0, 2, 0, 0, 0, 0, 0, 0],"
                            " [0, 0, 0, 0, 0, 1, 0, 0, -1, 0, 0, 0, 0]",
                            &timeline),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_timelines_join(&timeline, 1, &trace, &executed), WEFT_OK, "%s",
                 weft_error_message());
    cr_expect_eq(trace.step_count, 1);
    cr_expect_eq(trace.step[0].after_count, 0);
    weft_trace_free(&trace);
    weft_timeline_free(&timeline);
}

Test(replay, what_is_no_number_is_refused)
{
    weft_timeline timeline = {0};
    cr_assert_eq(read_steps("[0, 0, 0, 0, 0, 2, \"7\", 0, -1, 0, 0, 0]", &timeline), WEFT_E_FORMAT);
    cr_assert_eq(weft_error_class(), WEFT_MSG_FORMAT_DAMAGED, "%s", weft_error_message());
    cr_assert_str_eq(weft_error_fields()->key, "steps");
    cr_assert(strstr(weft_error_text(), "step 0: column 6"), "%s", weft_error_message());
}
