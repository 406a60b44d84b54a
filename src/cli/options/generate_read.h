/* Reads the options of `weft generate`. All functions report invalid values as WEFT_E_ARG. */
#ifndef WEFT_CLI_OPTIONS_GENERATE_READ_H
#define WEFT_CLI_OPTIONS_GENERATE_READ_H

#include "cli/options/verb.h"
#include "generate/generator/generator.h"
#include "generate/jobs/jobs.h"
#include "plan/cluster/cluster.h"

/* Adds the prompts of --prompt and --prompts and sets the seeds that they lack. */
weft_status weft_generate_jobs(const weft_args *args, weft_jobs *jobs);
/* Reads the options of method_options.h and others about the video. Makes the folder of --trace. */
weft_status weft_generate_read(const weft_args *args, weft_arena *arena, weft_generator_options *o);
/* Sets the folder for streamed weights whose files cannot be streamed directly: the output
 * folder, in `arena`. */
weft_status weft_generate_offload_dir(const weft_args *args, weft_arena *arena,
                                      weft_generator_options *o);
weft_status weft_generate_passes(const weft_args *args, weft_pass_switches *passes);
/* Rejects options that have no effect with --decode-latents. */
weft_status weft_generate_refuse_idle(const weft_args *args);
/* Reads --on. Measured rates predict seconds; costs without rates only rank the choices. */
weft_status weft_generate_cluster(const weft_args *args, weft_arena *arena, weft_cluster *cluster);

#endif
