/* `precision: auto`: by rates, units, the stored choice, and on all ranks alike. */
#include "base/fs.h"
#include "comm/comm_fake.h"
#include "estimate/training/resolve_precision.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char config[] =
    "out: none\n"
    "autoencoder:\n"
    "  class: AutoencoderKLWan\n"
    "  config: {base_dim: 4, dim_mult: [1, 1, 2, 2], num_res_blocks: 1, z_dim: 4}\n"
    "data: {path: none}\n"
    "transformer:\n"
    "  class: WanTransformer3DModel\n"
    "  config: {num_layers: 2, num_attention_heads: 2, attention_head_dim: 12, ffn_dim: 46, "
    "freq_dim: 32}\n"
    "text_encoders:\n"
    "  - class: WeftBytesEncoder\n"
    "    config: {dim: 16, num_heads: 2, num_layers: 1, ffn_dim: 32, max_length: 32}\n"
    "grad_reduce_dtype: bf16\n"
    "memory: {limit: 1GiB}\n"
    "stages: [{steps: 2, batch: 4, frames: 9, height: 32, width: 32}]\n";

typedef struct fixture {
    weft_arena *arena;
    weft_run run;
    weft_run_models models;
} fixture;

static void open_fixture(fixture *f, const char *precision)
{
    *f = (fixture){.arena = weft_arena_create()};
    cr_assert_eq(weft_config_parse(f->arena, config, (int64_t)strlen(config), "run.yaml",
                                   &precision, 1, &weft_run_section, &f->run),
                 WEFT_OK, "%s", weft_error_message());
    cr_assert_eq(weft_run_models_read(&f->run, "run.yaml", &f->models), WEFT_OK, "%s",
                 weft_error_message());
}

/* A machine on which arithmetic takes nearly all time. */
static weft_cluster machine(double flops, double bf16_flops)
{
    return (weft_cluster){.nodes = 1,
                          .devices = 1,
                          .device = {.type = "d",
                                     .memory = 1,
                                     .flops = flops,
                                     .memory_bandwidth = 1e12,
                                     .gemm = 1,
                                     .attention = 1,
                                     .conv = 1,
                                     .memory_fraction = 1,
                                     .bf16_flops = bf16_flops},
                          .link = {1e9, 0}};
}

Test(precision, the_faster_type_is_chosen)
{
    static const struct {
        double bf16;
        bool units;
        int precision;
    } row[] = {{3e9, true, WEFT_PRECISION_BF16},   {1.3e9, true, WEFT_PRECISION_BF16},
               {1.02e9, true, WEFT_PRECISION_F32}, /* the gain is below a tenth */
               {0, true, WEFT_PRECISION_F32},      {3e8, true, WEFT_PRECISION_F32},
               {3e9, false, WEFT_PRECISION_F32}};
    fixture f;
    open_fixture(&f, "precision=auto");
    for (int i = 0; i < WEFT_COUNT(row); i++) {
        const weft_cluster cluster = machine(1e9, row[i].bf16);
        weft_buf why = {0};
        int precision = -1;
        cr_assert_eq(weft_precision_choose(&f.run, &f.models, "run.yaml", &cluster, row[i].units,
                                           f.arena, &precision, &why),
                     WEFT_OK, "%s", weft_error_message());
        cr_expect_eq(precision, row[i].precision, "bf16 %g: %s", row[i].bf16, why.data);
        weft_buf_free(&why);
    }
    weft_arena_free(f.arena);
}

typedef struct rank_job {
    weft_comm *comm;
    fixture f;
    weft_precision_choice stored;
    weft_status_code status;
} rank_job;

static void *resolve(void *user)
{
    rank_job *j = user;
    weft_buf out = {0};
    j->status = weft_run_resolve_precision(&j->f.run, &j->f.models, "run.yaml", "local", j->comm,
                                           &j->stored, j->f.arena, &out);
    weft_buf_free(&out);
    return NULL;
}

/* Rank 0 has the stored choice, and rank 1 another one. Rates are not even measured. */
static void expect_together(int stored, int grad_reduce_dtype)
{
    weft_comm *comm[2];
    pthread_t thread[2];
    rank_job job[2];
    cr_assert_eq(weft_comm_open_threads(2, comm), WEFT_OK, "%s", weft_error_message());
    for (int r = 0; r < 2; r++) {
        job[r] = (rank_job){.comm = comm[r], .stored = {.precision = r ? !stored : stored}};
        open_fixture(&job[r].f, "precision=auto");
        cr_assert_eq(pthread_create(&thread[r], NULL, resolve, &job[r]), 0);
    }
    for (int r = 0; r < 2; r++) {
        pthread_join(thread[r], NULL);
        cr_assert_eq(job[r].status, WEFT_OK);
        cr_expect_eq(job[r].f.run.precision, stored, "rank %d", r);
        cr_expect_eq(job[r].f.run.grad_reduce_dtype, grad_reduce_dtype, "rank %d", r);
        cr_expect(!job[r].stored.changed);
        weft_comm_free(comm[r]);
        weft_arena_free(job[r].f.arena);
    }
}

Test(precision, ranks_take_the_choice_of_rank_0)
{
    expect_together(WEFT_PRECISION_BF16, WEFT_PRECISION_BF16);
    expect_together(WEFT_PRECISION_F32, WEFT_PRECISION_F32);
}

Test(precision, a_given_type_is_kept)
{
    static const char *const text[] = {"precision=f32", "precision=bf16"};
    for (int i = 0; i < 2; i++) {
        fixture f;
        weft_buf out = {0};
        weft_precision_choice stored = {.precision = WEFT_PRECISION_F32};
        open_fixture(&f, text[i]);
        cr_assert_eq(weft_run_resolve_precision(&f.run, &f.models, "run.yaml", "local", NULL,
                                                &stored, f.arena, &out),
                     WEFT_OK);
        cr_expect_eq(f.run.precision, i);
        cr_expect_eq(out.len, 0);
        weft_arena_free(f.arena);
    }
}

Test(precision, the_file_keeps_the_choice)
{
    char folder[] = "/tmp/weft-precision-XXXXXX", path[64];
    weft_precision_choice choice;
    cr_assert(mkdtemp(folder));
    cr_assert_eq(weft_precision_choice_load(folder, &choice), WEFT_OK);
    cr_expect_eq(choice.precision, WEFT_PRECISION_AUTO, "no file");
    for (int i = WEFT_PRECISION_F32; i <= WEFT_PRECISION_BF16; i++) {
        choice.precision = i;
        cr_assert_eq(weft_precision_choice_save(folder, &choice), WEFT_OK);
        choice.precision = -1;
        cr_assert_eq(weft_precision_choice_load(folder, &choice), WEFT_OK, "%s",
                     weft_error_message());
        cr_expect_eq(choice.precision, i);
        cr_expect(!choice.changed);
    }
    snprintf(path, sizeof path, "%s/precision-choice.json", folder);
    cr_assert_eq(weft_file_write_atomic(path, "{\"precision\": \"bf16\"}", 21), WEFT_OK);
    cr_expect_eq(weft_precision_choice_load(folder, &choice), WEFT_E_FORMAT);
    cr_assert_eq(weft_remove_tree(folder), WEFT_OK);
}
