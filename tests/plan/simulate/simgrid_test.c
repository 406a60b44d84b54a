/* SimGrid as referee of the event simulator: the same random traces on the same random clusters. Each
 * message of each round is a SimGrid communication, and each rank proceeds independently. */
#include "base/rng.h"
#include "plan/cluster/cluster_path.h"
#include "plan/simulate/simulator.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#if __has_include(<simgrid/engine.h>)
#include <simgrid/actor.h>
#include <simgrid/comm.h>
#include <simgrid/cond.h>
#include <simgrid/engine.h>
#include <simgrid/host.h>
#include <simgrid/mailbox.h>
#include <simgrid/mutex.h>

enum { ROUNDS = 36, MAX_MESSAGES = 64 };

/* A cluster of 1-4 nodes with 2-8 devices, rails or one switch, fast or slow links. */
static weft_cluster random_cluster(weft_arena *arena, weft_rng *rng)
{
    const int64_t nodes = 1 + (int64_t)weft_rng_below(rng, 4),
                  devices = 2 + (int64_t)weft_rng_below(rng, 7);
    const int64_t nics = 1 + (int64_t)weft_rng_below(rng, (uint64_t)devices);
    weft_buf yaml = {0};
    weft_buf_printf(
        &yaml,
        "nodes: %d\ndevices: %d\ndevice: {memory: 1GiB, flops: 1e12, memory_bandwidth: 1e12}\n"
        "link: {bandwidth: %g, latency: 1e-6}\nhost: {}\nhop_bandwidth: 0\n",
        (int)nodes, (int)devices, 20e9 + 100e9 * weft_rng_f64(rng));
    const bool rails = weft_rng_below(rng, 2);
    weft_buf_printf(&yaml, "nics:\n");
    for (int64_t i = 0; i < nics; i++)
        weft_buf_printf(&yaml, "  - {switch: leaf%d, bandwidth: %g, latency: 2e-6}\n",
                        rails ? (int)i : 0, 12e9);
    weft_buf_printf(&yaml, "switches:\n  - {name: spine}\n");
    for (int64_t i = 0; i < (rails ? nics : 1); i++)
        weft_buf_printf(&yaml, "  - {name: leaf%d, up: spine, bandwidth: %g, latency: 1e-6}\n",
                        (int)i, 10e9 + 20e9 * weft_rng_f64(rng));
    weft_cluster c;
    cr_assert_eq(
        weft_config_parse(arena, yaml.data, yaml.len, "random", NULL, 0, &weft_cluster_section, &c),
        WEFT_OK, "%s", weft_error_message());
    weft_buf_free(&yaml);
    cr_assert_eq(weft_cluster_resolve(&c, "random"), WEFT_OK, "%s", weft_error_message());
    return c;
}

static weft_trace random_trace(weft_rng *rng, int64_t devices)
{
    static const uint8_t kinds[] = {
        WEFT_TRACE_COMPUTE,    WEFT_TRACE_COMPUTE,    WEFT_TRACE_ALL_TO_ALL,
        WEFT_TRACE_ALL_REDUCE, WEFT_TRACE_ALL_GATHER, WEFT_TRACE_REDUCE_SCATTER,
        WEFT_TRACE_BROADCAST,  WEFT_TRACE_RING_SHIFT, WEFT_TRACE_SEND};
    weft_trace t = {.devices = devices};
    const int64_t steps = 8 + (int64_t)weft_rng_below(rng, 25);
    for (int64_t i = 0; i < steps; i++) {
        int32_t list[64], n = 0, after[3];
        const int64_t wanted = 1 + (int64_t)weft_rng_below(rng, (uint64_t)devices);
        for (int32_t d = 0; d < devices; d++) /* rising, so members of a node stand together */
            if ((int64_t)weft_rng_below(rng, (uint64_t)(devices - d)) < wanted - n)
                list[n++] = d;
        weft_trace_step s = {.kind = kinds[weft_rng_below(rng, sizeof kinds)], .owner = -1};
        if (s.kind == WEFT_TRACE_SEND && n < 2)
            s.kind = WEFT_TRACE_COMPUTE;
        if (s.kind == WEFT_TRACE_SEND)
            n = 2;
        s.stream = s.kind == WEFT_TRACE_COMPUTE ? WEFT_STREAM_COMPUTE
                                                : (uint8_t)(1 + weft_rng_below(rng, 2));
        s.seconds = s.kind == WEFT_TRACE_COMPUTE ? 0.01 * weft_rng_f64(rng) : 0;
        s.bytes = 2e8 * weft_rng_f64(rng) * weft_rng_f64(rng) + 1e4;
        int64_t waits = 0;
        for (; waits < 2 && i > 0 && weft_rng_below(rng, 2); waits++)
            after[waits] = (int32_t)weft_rng_below(rng, (uint64_t)i);
        cr_assert_eq(weft_trace_add_group(&t, list, n, &s.group), WEFT_OK);
        cr_assert_eq(weft_trace_add_name(&t, "step", &s.name), WEFT_OK);
        cr_assert_eq(weft_trace_add_step(&t, s, after, waits, NULL), WEFT_OK);
    }
    return t;
}

static void write_platform(const weft_cluster *c, const char *path)
{
    FILE *f = fopen(path, "w");
    cr_assert(f);
    const int64_t n = weft_cluster_devices(c), links = weft_cluster_link_count(c);
    fprintf(
        f, "<?xml version='1.0'?>\n<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
           "<platform version=\"4.1\">\n<zone id=\"z\" routing=\"Full\">\n");
    for (int64_t d = 0; d < n; d++)
        fprintf(f, "<host id=\"h%d\" speed=\"1Gf\"/>\n", (int)d);
    for (int64_t l = 0; l < links; l++)
        if (isfinite(weft_cluster_link_bandwidth(c, l)) && weft_cluster_link_bandwidth(c, l) > 0)
            fprintf(f, "<link id=\"l%d\" bandwidth=\"%.17gBps\" latency=\"0s\"/>\n", (int)l,
                    weft_cluster_link_bandwidth(c, l));
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++)
            if (a != b) { /* the latency of the whole way on a link of its own that nothing fills */
                weft_path p;
                weft_cluster_path(c, a, b, &p);
                fprintf(f,
                        "<link id=\"w%d_%d\" bandwidth=\"1e15Bps\" latency=\"%.17gs\" "
                        "sharing_policy=\"FATPIPE\"/>\n",
                        (int)a, (int)b, p.latency);
            }
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++)
            if (a != b) {
                weft_path p;
                weft_cluster_path(c, a, b, &p);
                fprintf(
                    f,
                    "<route src=\"h%d\" dst=\"h%d\" symmetrical=\"NO\"><link_ctn id=\"w%d_%d\"/>",
                    (int)a, (int)b, (int)a, (int)b);
                for (int32_t k = 0; k < p.count; k++)
                    fprintf(f, "<link_ctn id=\"l%d\"/>", p.link[k]);
                fprintf(f, "</route>\n");
            }
    fprintf(f, "</zone>\n</platform>\n");
    fclose(f);
}

/* State of all actors. Each trace runs in a process of its own. */
static const weft_trace *the_trace;
static const weft_cluster *the_cluster;
static sg_mutex_t lock;
static sg_cond_t changed;
static int32_t *arrived, *finished;
static int payload;

typedef struct talk {
    sg_comm_t comm[4 * MAX_MESSAGES];
    void *got[4 * MAX_MESSAGES];
    int count;
} talk;

static void message(talk *k, int step, int round, int ring, int from, int to, int me, double bytes)
{
    char name[96];
    if (from != me && to != me)
        return;
    snprintf(name, sizeof name, "%d.%d.%d.%d.%d", step, round, ring, from, to);
    sg_mailbox_t box = sg_mailbox_by_name(name);
    if (from == me)
        k->comm[k->count++] = sg_mailbox_put_async(box, &payload, (long)bytes);
    if (to == me) {
        k->comm[k->count] = sg_mailbox_get_async(box, &k->got[k->count]);
        k->count++;
    }
}

static void finish_round(talk *k)
{
    for (int i = 0; i < k->count; i++)
        sg_comm_wait(k->comm[i]);
    k->count = 0;
}

/* Order of ring r: inside each node turned by r. */
static int turned(const int32_t *m, int n, int r, int *order)
{
    int rings = n, parts = 0, k = 0;
    for (int a = 0, b; a < n; a = b, parts++) {
        for (b = a; b < n && m[b] / the_cluster->devices == m[a] / the_cluster->devices; b++)
            ;
        rings = b - a < rings ? b - a : rings;
        for (int i = 0; i < b - a; i++)
            order[k++] = m[a + (i + r) % (b - a)];
    }
    return parts == 1 ? 1 : rings;
}

/* Members whose stream a step occupies: of a send the sender's alone. */
static int holders(int index)
{
    const weft_trace_step *s = &the_trace->step[index];
    return s->kind == WEFT_TRACE_SEND ? 1 : the_trace->group[s->group].count;
}

/* Receives messages while its device computes. */
static void receive_actor(int argc, char **argv)
{
    (void)argc;
    talk k = {.count = 0};
    message(&k, atoi(argv[1]), 0, 0, atoi(argv[2]), atoi(argv[3]), atoi(argv[3]), 0);
    finish_round(&k);
}

static void send_to(talk *k, int index, int from, int to, double bytes)
{
    char host[16], step[16], a[16], b[16];
    snprintf(host, sizeof host, "h%d", to);
    snprintf(step, sizeof step, "%d", index);
    snprintf(a, sizeof a, "%d", from);
    snprintf(b, sizeof b, "%d", to);
    const char *const argv[] = {"receive", step, a, b, NULL};
    sg_actor_create_("receive", sg_host_by_name(host), receive_actor, 4, argv);
    message(k, index, 0, 0, from, to, from, bytes);
}

static void communicate(int index, int me)
{
    const weft_trace_step *s = &the_trace->step[index];
    const weft_trace_group *g = &the_trace->group[s->group];
    const int32_t *m = the_trace->member + g->first;
    const int n = g->count;
    talk k = {.count = 0};
    int order[64];
    if (s->kind == WEFT_TRACE_SEND) {
        send_to(&k, index, m[0], m[1], s->bytes);
    } else if (s->kind == WEFT_TRACE_ALL_TO_ALL) {
        for (int shift = 1; shift < n; shift++) {
            for (int i = 0; i < n; i++)
                message(&k, index, shift, 0, m[i], m[(i + shift) % n], me, s->bytes / n);
            finish_round(&k);
        }
    } else if (s->kind == WEFT_TRACE_BROADCAST) {
        for (int have = 1; have < n; have *= 2) {
            for (int i = 0; i < have && i + have < n; i++)
                message(&k, index, have, 0, m[i], m[i + have], me, s->bytes);
            finish_round(&k);
        }
    } else if (s->kind == WEFT_TRACE_RING_SHIFT) {
        for (int i = 0; i < n && n > 1; i++)
            message(&k, index, 0, 0, m[i], m[(i + 1) % n], me, s->bytes);
    } else {
        const int rings = turned(m, n, 0, order);
        const int rounds = s->kind == WEFT_TRACE_ALL_REDUCE ? 2 * (n - 1) : n - 1;
        for (int round = 0; round < rounds; round++) {
            for (int r = 0; r < rings; r++) {
                turned(m, n, r, order);
                for (int i = 0; i < n; i++)
                    message(&k, index, round, r, order[i], order[(i + 1) % n], me,
                            s->bytes / n / rings);
            }
            finish_round(&k);
        }
    }
    finish_round(&k);
}

static void stream_actor(int argc, char **argv)
{
    (void)argc;
    const int device = atoi(argv[1]), stream = atoi(argv[2]);
    for (int i = 0; i < the_trace->step_count; i++) {
        const weft_trace_step *s = &the_trace->step[i];
        const weft_trace_group *g = &the_trace->group[s->group];
        bool mine = false;
        for (int k = 0; k < holders(i); k++)
            mine |= the_trace->member[g->first + k] == device;
        if (!mine || s->stream != stream)
            continue;
        sg_mutex_lock(lock); /* all members have arrived, and all dependencies are complete */
        arrived[i]++;
        sg_cond_notify_all(changed);
        for (bool go = false; !go;) {
            go = arrived[i] == holders(i);
            for (int k = 0; k < s->after_count; k++) {
                const int before = the_trace->after[s->first_after + k];
                go &= finished[before] == holders(before);
            }
            if (!go)
                sg_cond_wait(changed, lock);
        }
        sg_mutex_unlock(lock);
        if (s->kind == WEFT_TRACE_COMPUTE)
            sg_actor_sleep_for(s->seconds);
        else
            communicate(i, device);
        sg_mutex_lock(lock);
        finished[i]++;
        for (; finished[i] < holders(i);) /* a step ends for all at once */
            sg_cond_wait(changed, lock);
        sg_cond_notify_all(changed);
        sg_mutex_unlock(lock);
    }
}

static double run_simgrid(const weft_trace *t, const weft_cluster *c, const char *platform)
{
    char *args[] = {"referee",
                    "--cfg=network/model:CM02",
                    "--cfg=network/latency-factor:1",
                    "--cfg=network/bandwidth-factor:1",
                    "--cfg=network/weight-S:0",
                    "--cfg=network/TCP-gamma:0",
                    "--cfg=network/crosstraffic:0",
                    "--log=root.thres:critical",
                    NULL};
    int argc = 8;
    simgrid_init(&argc, args);
    simgrid_load_platform(platform);
    the_trace = t;
    the_cluster = c;
    lock = sg_mutex_init();
    changed = sg_cond_init();
    arrived = calloc((size_t)t->step_count, sizeof *arrived);
    finished = calloc((size_t)t->step_count, sizeof *finished);
    for (int d = 0; d < t->devices; d++)
        for (int stream = 0; stream < WEFT_STREAM_COUNT; stream++) {
            char host[16], a[16], b[16];
            snprintf(host, sizeof host, "h%d", d);
            snprintf(a, sizeof a, "%d", d);
            snprintf(b, sizeof b, "%d", stream);
            const char *const argv[] = {"stream", a, b, NULL};
            sg_actor_create_("stream", sg_host_by_name(host), stream_actor, 3, argv);
        }
    simgrid_run();
    return simgrid_get_clock();
}

Test(simulate, simgrid_agrees)
{
    weft_rng rng = weft_rng_make(41, WEFT_RNG_TEST);
    double worst = 0, mean = 0;
    for (int round = 0; round < ROUNDS; round++) {
        weft_arena *arena = weft_arena_create();
        weft_cluster c = random_cluster(arena, &rng);
        weft_trace t = random_trace(&rng, weft_cluster_devices(&c));
        weft_simulation r;
        cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_OK, "%s", weft_error_message());
        char path[] = "/tmp/weft-platform-XXXXXX.xml";
        const int file = mkstemps(path, 4);
        cr_assert(file >= 0);
        close(file);
        write_platform(&c, path);
        int pipes[2];
        cr_assert_eq(pipe(pipes), 0);
        const pid_t child = fork();
        if (child == 0) { /* SimGrid has one engine per process */
            const double seconds = run_simgrid(&t, &c, path);
            const ssize_t written = write(pipes[1], &seconds, sizeof seconds);
            _exit(written == sizeof seconds ? 0 : 1);
        }
        close(pipes[1]);
        double seconds = -1;
        const ssize_t got = read(pipes[0], &seconds, sizeof seconds);
        int state;
        waitpid(child, &state, 0);
        close(pipes[0]);
        unlink(path);
        cr_assert_eq(got, (ssize_t)sizeof seconds, "round %d: SimGrid ended with %d", round, state);
        const double error = fabs(r.seconds / seconds - 1);
        mean += error / ROUNDS;
        worst = fmax(worst, error);
        cr_expect(error <= 0.05, "round %d (%d devices, %d steps): %.6g s, SimGrid %.6g s", round,
                  (int)t.devices, (int)t.step_count, r.seconds, seconds);
        weft_simulation_free(&r);
        weft_trace_free(&t);
        weft_arena_free(arena);
    }
    fprintf(stderr, "%d traces: off SimGrid by %.2f %% on average, %.2f %% at most\n", ROUNDS,
            100 * mean, 100 * worst);
}
#else
Test(simulate, simgrid_agrees)
{
    cr_skip("SimGrid is not installed");
}
#endif

/* One ring over two nodes by hand: (n - 1) / n of the bytes over the slowest link, and the
 * latencies. */
Test(simulate, closed_forms)
{
    weft_arena *arena = weft_arena_create();
    weft_cluster c;
    cr_assert_eq(weft_cluster_load(arena, "v100:2", &c), WEFT_OK, "%s", weft_error_message());
    weft_trace t = {.devices = 16};
    int32_t list[16];
    for (int32_t i = 0; i < 16; i++)
        list[i] = i;
    weft_trace_step s = {
        .kind = WEFT_TRACE_ALL_GATHER, .stream = WEFT_STREAM_COMM, .bytes = 1.6e9, .owner = -1};
    cr_assert_eq(weft_trace_add_group(&t, list, 8, &s.group), WEFT_OK);
    cr_assert_eq(weft_trace_add_name(&t, "gather", &s.name), WEFT_OK);
    cr_assert_eq(weft_trace_add_step(&t, s, NULL, 0, NULL), WEFT_OK);
    weft_simulation r;
    cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_OK, "%s", weft_error_message());
    cr_assert_float_eq(r.seconds, 7.0 / 8 * 1.6e9 / 150e9 + 7 * 3e-6, 1e-9);
    weft_simulation_free(&r);
    /* between the nodes all sixteen share one NIC each way: 8 x 8 messages of a sixteenth */
    t.step[0].kind = WEFT_TRACE_ALL_TO_ALL;
    cr_assert_eq(weft_trace_add_group(&t, list, 16, &t.step[0].group), WEFT_OK);
    cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_OK, "%s", weft_error_message());
    cr_assert(r.seconds >= 64 * 1.6e9 / 16 / 10e9, "%g", r.seconds);
    cr_assert(r.seconds <= 1.15 * 64 * 1.6e9 / 16 / 10e9, "%g", r.seconds);
    weft_simulation_free(&r);
    weft_trace_free(&t);
    weft_arena_free(arena);
}

/* Streams: communication overlaps with compute, and a step in a wrong order is refused. */
Test(simulate, streams_and_refusals)
{
    weft_arena *arena = weft_arena_create();
    weft_cluster c;
    cr_assert_eq(weft_cluster_load(arena, "h100:1", &c), WEFT_OK);
    weft_trace t = {.devices = 2};
    const int32_t pair[] = {0, 1};
    weft_trace_step s = {.kind = WEFT_TRACE_COMPUTE, .seconds = 1, .memory = 5, .owner = -1};
    cr_assert_eq(weft_trace_add_group(&t, pair, 2, &s.group), WEFT_OK);
    cr_assert_eq(weft_trace_add_name(&t, "a", &s.name), WEFT_OK);
    cr_assert_eq(weft_trace_add_step(&t, s, NULL, 0, NULL), WEFT_OK);
    s.kind = WEFT_TRACE_SEND;
    s.seconds = 0; /* of a send: how long it waits before its bytes */
    s.stream = WEFT_STREAM_COMM;
    s.bytes = 450e9 / 2;
    cr_assert_eq(weft_trace_add_step(&t, s, NULL, 0, NULL), WEFT_OK);
    weft_simulation r;
    cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_OK, "%s", weft_error_message());
    cr_assert_float_eq(r.seconds, 1, 1e-9);
    cr_assert_float_eq(r.exposed[0], 0, 1e-9);
    cr_assert_float_eq(r.peak[0], 10, 1e-9);
    weft_simulation_free(&r);
    const int32_t later = 1;
    t.after = weft_alloc(sizeof *t.after);
    t.after[0] = later;
    t.after_count = 1;
    t.step[0].after_count = 1;
    cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_E_FORMAT);
    t.step[0].after_count = 0;
    t.devices = 100;
    cr_assert_eq(weft_simulate(&t, &c, &r), WEFT_E_ARG);
    cr_assert_eq(weft_error_class(), WEFT_MSG_PLAN_OUTDATED, "%s", weft_error_message());
    cr_assert_float_eq(weft_error_fields()->number, 100, 0);
    weft_trace_free(&t);
    weft_arena_free(arena);
}
