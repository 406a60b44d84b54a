#include "cli/generate_run.h"

#include "base/log.h"
#include "cli/generator_backend.h"
#include "cli/options/backend_option.h"
#include "cli/options/generate_read.h"
#include "cli/options/lora_option.h"
#include "cli/options/parallel_choice.h"
#include "cli/options/parallel_option.h"
#include "cli/options/tile_option.h"
#include "cli/options/weights_option.h"
#include "comm/comm_mpi.h"
#include "comm/comm_world.h"
#include "comm/shared_folder.h"
#include "generate/generator/own_settings.h"
#include "generate/jobs/decode_jobs.h"
#include "generate/jobs/generation_run.h"
#include "generate/jobs/video_outputs.h"
#include "plan/cluster/cluster.h"

#include <stdio.h>
#include <string.h>

/* An interrupt of one rank stopped all ranks. Rank 0 prints the message before any rank exits,
 * because a launcher ends the whole job when one of its processes ends. */
static weft_status leave_together(weft_comm *comm)
{
    if (weft_comm_rank(comm) == 0)
        weft_notice(WEFT_MSG_INTERRUPTED, weft_error_fields(), "%s", weft_error_text());
    WEFT_TRY(weft_comm_barrier(comm));
    weft_error_clear(); /* rank 0 has printed it */
    return WEFT_E_CANCELLED;
}

/* Sizes of videos may be in the list of prompts: the first one counts. Without prompts, latents are
 * decoded. */
static weft_status choose_precision(const weft_args *args, weft_arena *arena, const weft_jobs *jobs,
                                    weft_comm *comm, weft_generator_options *o)
{
    weft_generator_options first = *o;
    const weft_job *job = jobs->at;
    o->precision_auto = false;
    if (!jobs->count)
        return WEFT_OK;
    first.frames = job->frames ? job->frames : o->frames;
    first.height = job->height ? job->height : o->height;
    first.width = job->width ? job->width : o->width;
    WEFT_TRY(
        weft_args_choose_precision(args, arena, weft_args_string(args, "--model"), comm, &first));
    o->bf16 = first.bf16;
    return WEFT_OK;
}

static weft_status produce(const weft_args *args, const weft_generator_options *o, weft_jobs *jobs,
                           weft_comm *comm, const weft_cluster *cluster)
{
    int layouts, decoded;
    const char *const *latents = weft_args_list(args, "--decode-latents", &decoded);
    (void)weft_args_list(args, "--parallel", &layouts);
    const weft_generation_run run = {.model = weft_args_string(args, "--model"),
                                     .out = weft_args_string(args, "--out"),
                                     .sheet = weft_args_string(args, "--sheet"),
                                     .raw = weft_args_flag(args, "--frames-npy"),
                                     .latents = weft_args_flag(args, "--latents-npy"),
                                     .keep_latents = weft_args_flag(args, "--save-latents"),
                                     .resume = weft_args_flag(args, "--resume"),
                                     .split_states = weft_args_flag(args, "--split-states"),
                                     .noise = weft_args_string(args, "--init-latents"),
                                     .apart = !layouts && !weft_args_string(args, "--config"),
                                     .options = o,
                                     .cluster = cluster->device.rates ? cluster : NULL,
                                     .jobs = jobs,
                                     .comm = comm};
    return decoded ? weft_decode_jobs_files(&run, latents, decoded)
                   : weft_generation_run_execute(&run);
}

/* Settles the backend. A memory limit above the memory of a rank's device becomes the free memory:
 * a server limits its workers to parts of the machine's memory, and does not know their devices. */
static weft_status settle_backend(const char *name, weft_comm *comm, weft_generator_options *o)
{
    WEFT_TRY(weft_generator_settle(name, comm, o));
    const weft_device *device = weft_backend_device(o->backend);
    double above = device && device->total && o->memory > device->total(device);
    WEFT_TRY(weft_comm_sum(comm, &above, 1));
    o->memory = above > 0 ? 0 : o->memory;
    return WEFT_OK;
}

weft_status weft_generate_run(const weft_args *args, struct weft_resident_weights *resident,
                              weft_comm *world, bool prints)
{
    weft_jobs jobs = {0};
    weft_pass_switches passes;
    weft_parallel parallel;
    weft_cluster cluster;
    bool choose;
    weft_tile tile;
    weft_generator_options o = {.passes = &passes, .parallel = &parallel, .resident = resident};
    weft_arena *arena = weft_arena_create();
    weft_comm *comm = world;
    weft_status_code status = WEFT_OK;
    WEFT_GO(WEFT_ALLOCATED(arena, "the generation"));
    WEFT_GO(weft_generate_refuse_idle(args));
    WEFT_GO(weft_video_outputs_check_out(weft_args_string(args, "--out")));
    WEFT_GO(weft_generate_cluster(args, arena, &cluster));
    WEFT_GO(weft_args_layout(args, arena, &parallel, &choose));
    WEFT_GO(weft_args_comm_overlap(args, &parallel.overlap));
    WEFT_GO(weft_args_backend(args, &o.backend));
    WEFT_GO(weft_generate_jobs(args, &jobs));
    WEFT_GO(weft_generate_read(args, arena, &o));
    WEFT_GO(weft_args_tile(args, &tile, &o.tile, &o.memory, &o.vae_products));
    WEFT_GO(weft_generate_passes(args, &passes));
    WEFT_GO(weft_args_lora(args, arena, &o.adapters, &o.adapter_count));
    WEFT_GO(weft_generate_offload_dir(args, arena, &o));
    if (!world)
        WEFT_GO(weft_comm_open_mpi(&comm));
    WEFT_GO(weft_own_settings_take(weft_args_string(args, "--model"),
                                   jobs.count && weft_comm_rank(comm) == 0, WEFT_USUAL_STEPS, &o));
    if (weft_args_shared_folder(args, "--out"))
        WEFT_GO(weft_comm_check_shared(comm, weft_args_shared_folder(args, "--out"),
                                       weft_args_given(args, "--out")));
    WEFT_GO(settle_backend(weft_args_string(args, "--backend"), comm, &o));
    if (weft_comm_ranks(comm) == 1 && weft_args_flag(args, "--comm-overlap"))
        weft_warning(WEFT_MSG_CONFIG_UNUSUAL, WEFT_AT(.key = "--comm-overlap"),
                     "one rank exchanges nothing, so slices have no effect; remove this option, or "
                     "start ranks with mpirun -n N weft generate ...");
    o.batch = o.batch < jobs.count ? o.batch : jobs.count ? jobs.count : 1;
    const bool chooses = o.precision_auto;
    WEFT_GO(choose_precision(args, arena, &jobs, comm, &o));
    if (chooses) /* by the comparison of kernels in this precision */
        WEFT_GO(settle_backend(o.backend->name, comm, &o));
    if (choose)
        WEFT_GO(weft_args_choose_layout(args, arena, weft_args_string(args, "--model"), comm, &o,
                                        &parallel));
    WEFT_GO(weft_args_choose_comm_overlap(args, arena, weft_args_string(args, "--model"), comm, &o,
                                          &parallel));
    WEFT_GO(produce(args, &o, &jobs, comm, &cluster));
    if (prints && weft_comm_rank(comm) == 0)
        printf("%s%s%s\n", weft_args_given(args, "--out"),
               weft_args_given(args, "--sheet") ? "\n" : "",
               weft_args_given(args, "--sheet") ? weft_args_given(args, "--sheet") : "");
out:
    if (status == WEFT_E_CANCELLED)
        status = leave_together(comm);
    else if (status != WEFT_OK)
        weft_comm_abort(comm); /* releases the ranks that wait for this rank */
    if (!world)
        weft_comm_free(comm);
    weft_arena_free(arena);
    weft_jobs_free(&jobs);
    return status;
}
