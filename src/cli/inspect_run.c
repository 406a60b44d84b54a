#include "cli/inspect_run.h"

#include "base/log.h"
#include "train/step.h"

#include <stdio.h>

static void line(const char *what, int64_t bytes, const char *note)
{
    char text[32];
    printf("  %-14s %14s  %s\n", what, weft_format_bytes(bytes, text), note);
}

static weft_status print_graph(const weft_graph *g)
{
    weft_buf text = {0};
    weft_graph_print(g, &text);
    const weft_status_code status = weft_buf_check(&text);
    if (status == WEFT_OK)
        fwrite(text.data, 1, (size_t)text.len, stdout);
    weft_buf_free(&text);
    return status;
}

static weft_status plan_bucket(const weft_run *run, const weft_run_models *models,
                               const weft_bucket *size, const weft_place_of_run *place,
                               int64_t *params, weft_step *step)
{
    weft_graph *whole = weft_graph_create();
    if (whole)
        weft_objective_build(whole, run, models, size);
    *params = whole ? weft_graph_param_count(whole) : 0;
    return weft_step_plan(whole, &run->optimizer, place, step);
}

static weft_status inspect_bucket(const weft_stage *stage, const weft_bucket *size,
                                  const weft_step *step, int64_t params, bool print)
{
    const weft_memory_plan *plan = weft_program_plan(step->program);
    printf("stage %s: %lld steps of %lld x %lldx%lldx%lld\n", stage->name, (long long)stage->steps,
           (long long)size->batch, (long long)size->frames, (long long)size->height,
           (long long)size->width);
    printf("  %-14s %14lld  trained together\n", "parameters", (long long)params);
    printf("  %-14s %14.4g  of a training step\n", "FLOPs", (double)step->cost.flops);
    printf("  %-14s %14d  on a rank\n", "nodes", (int)weft_graph_node_count(step->graph));
    line("weights", plan->source_bytes, "with the optimizer's moments and the moving average");
    line("activations", plan->arena_bytes, "the arena that a run reserves: the peak, exactly");
    line("workspace", plan->workspace_bytes, "of the kernels, reserved once");
    line("inputs", plan->input_bytes, "");
    return print ? print_graph(step->graph) : WEFT_OK;
}

/* The programs of a stage's buckets share their arenas. */
static weft_status inspect_stage(const weft_run *run, const weft_run_models *models,
                                 const weft_stage *stage, const weft_place_of_run *place,
                                 bool print)
{
    const int count = weft_stage_bucket_count(stage);
    const double begin = weft_now();
    weft_step *step = weft_alloc(count * (int64_t)sizeof *step);
    weft_program **program = weft_alloc(count * (int64_t)sizeof *program);
    weft_status_code status =
        step && program ? WEFT_OK : weft_fail(WEFT_E_MEMORY, "out of memory for %d graphs", count);
    int64_t params = 0;
    for (int i = 0; i < count; i++) {
        WEFT_GO(plan_bucket(run, models, weft_stage_bucket(stage, i), place, &params, &step[i]));
        WEFT_GO(inspect_bucket(stage, weft_stage_bucket(stage, i), &step[i], params, print));
        program[i] = step[i].program;
    }
    line("program", weft_programs_bytes(program, count),
         "reserved for the stage: all but the weights");
    line("predicted peak",
         weft_programs_bytes(program, count) + weft_program_plan(program[0])->source_bytes,
         "the program's and the weights'");
    printf("  planned in %.2f s\n", weft_now() - begin);
out:
    for (int i = 0; i < count && step; i++)
        weft_step_free(&step[i]);
    weft_free(step);
    weft_free(program);
    return status;
}

weft_status weft_inspect_run(const weft_args *args, const char *path)
{
    weft_arena *arena = weft_arena_create();
    weft_comm *comm = NULL;
    weft_run run;
    weft_run_models models;
    weft_status_code status = WEFT_OK;
    if (!arena)
        return weft_fail(WEFT_E_MEMORY, "out of memory");
    WEFT_GO(weft_args_config(args, arena, path, &run));
    WEFT_GO(weft_run_check(&run, path));
    WEFT_GO(weft_run_models_read(&run, path, &models));
    WEFT_GO(weft_comm_open_mpi(&comm));
    const weft_place_of_run place = {.comm = comm,
                                     .backend = weft_backend_find(run.backend),
                                     .recompute = run.recompute.item,
                                     .recompute_count = (int)run.recompute.count,
                                     .mesh = {.axis_count = 1, .axis = {{"dp", 1}}}};
    const weft_stage *stages = run.stages.item;
    for (int64_t i = 0; i < run.stages.count; i++)
        WEFT_GO(inspect_stage(&run, &models, &stages[i], &place, weft_args_flag(args, "--graph")));
out:
    weft_comm_free(comm);
    weft_arena_free(arena);
    return status;
}
