/* The table of the fields of a request. Ranges that depend on the model or on other fields are
 * checked by video_request.c. */
#include "serve/request_table.h"

#include "serve/video_request.h"

#include <assert.h>
#include <string.h>

#define SIDE WEFT_REQUEST_SIDE

static const char *const window_modes[] = {"blend", "continue", "history", NULL};
static const char *const orders[] = {"reverse", "forward", NULL};
static const char *const first_steps[] = {"same", "double", NULL};
static const char *const fits[] = {"stretch", "crop", NULL};

static const weft_key keys[] = {
    {"prompt", WEFT_KEY_STRING, 0, NULL, "", "text that describes the video"},
    {"negative_prompt", WEFT_KEY_STRING, 0, "", "", "text that describes what to avoid"},
    {"model", WEFT_KEY_STRING, 0, "", "", "name of --model; default: the first model"},
    {"size", WEFT_KEY_STRING, 0, "", "",
     "WIDTHxHEIGHT, such as 832x480; default: the trained size"},
    {"width", WEFT_KEY_I64, 0, "", "pixels", "width; default: the trained size", .min = 1,
     .max = SIDE},
    {"height", WEFT_KEY_I64, 0, "", "pixels", "height; default: the trained size", .min = 1,
     .max = SIDE},
    {"frames", WEFT_KEY_I64, 0, "", "", "a legal length of the model; default: the trained length",
     .min = 1, .max = 100000, .also = "num_frames"},
    {"seconds", WEFT_KEY_F64, 0, "", "s", "length in place of frames; the nearest legal one",
     .min = 0.01, .max = 3600},
    {"fps", WEFT_KEY_F64, 0, "", "", "frames per second; default: the model's own", .min = 0.01,
     .max = 1000},
    {"steps", WEFT_KEY_I64, 0, "30", "", "denoising steps", .min = 1, .max = 10000,
     .also = "num_inference_steps"},
    {"seed", WEFT_KEY_I64, 0, "0", "", "random seed", .min = 0, .max = WEFT_REQUEST_SEED},
    {"guidance_scale", WEFT_KEY_F64, 0, "", "", "guidance; default: the model's own", .min = 0,
     .max = 100},
    {"sampler", WEFT_KEY_STRING, 0, "", "", "name of a sampler; default: the model's own"},
    {"precision", WEFT_KEY_STRING, 0, "", "",
     "type in which transformer and text encoders compute: f32, tf32, bf16 or auto; default: "
     "the server's"},
    {"vae_precision", WEFT_KEY_STRING, 0, "", "",
     "type in which the VAE computes: f32, tf32 or bf16; default: the server's"},
    {"weights", WEFT_KEY_STRING, 0, "", "",
     "type of the weights in memory: stored, f32, bf16, int8, gguf or stream; default: the "
     "server's"},
    {"preview", WEFT_KEY_I64, 0, "0", "steps",
     "steps between previews, at most `steps`; 0 disables previews", .min = 0, .max = 10000},
    {"lora", WEFT_KEY_STRING, 0, "", "", "names of --lora with weights: style:0.8,grain"},
    {"input_reference", WEFT_KEY_STRING, 0, "", "",
     "first frame: an image, only as a file of a form (multipart/form-data)"},
    {"last_image", WEFT_KEY_STRING, 0, "", "", "last frame: an image, only as a file of a form"},
    {"video", WEFT_KEY_STRING, 0, "", "", "video or image to change, only as a file of a form"},
    {"control", WEFT_KEY_STRING, 0, "", "", "control video or image, only as a file of a form"},
    {"mask", WEFT_KEY_STRING, 0, "", "",
     "image or video, only as a file of a form: white is generated, black is kept"},
    {"strength", WEFT_KEY_F64, 0, "0", "",
     "share of the steps to run on `video`; 0: 0.8, or 1 with a mask", .min = 0, .max = 1},
    {"identity_image", WEFT_KEY_STRING, 0, "", "",
     "image of the person or thing that the video shows, only as a file of a form"},
    {"identity_scale", WEFT_KEY_F64, 0, "1", "", "strength of `identity_image`", .min = 0,
     .max = 10},
    {"fit", WEFT_KEY_ENUM, 0, "stretch", "", "how images of another aspect ratio are resized",
     .choices = fits},
    {"outpaint", WEFT_KEY_STRING, 0, "", "",
     "pixels to generate left of, above, right of and below `video`: 64,0,64,0"},
    {"max_sequence_length", WEFT_KEY_I64, 0, "0", "",
     "tokens of a prompt that the model gets; 0: the model's own", .min = 0, .max = 100000},
    {"window", WEFT_KEY_I64, 0, "0", "frames",
     "frames of a temporal window, or of a section; 0: one window, or the model's own", .min = 0,
     .max = 100000},
    {"window_overlap", WEFT_KEY_I64, 0, "0", "frames",
     "frames that neighbouring windows share; 0: about a quarter", .min = 0, .max = 100000},
    {"window_mode", WEFT_KEY_ENUM, 0, "blend", "", "how windows are joined",
     .choices = window_modes},
    {"sections", WEFT_KEY_ENUM, 0, "reverse", "", "order of the sections (Framepack)",
     .choices = orders},
    {"frame_lag", WEFT_KEY_I64, 0, "0", "steps",
     "steps by which a block of frames is noisier than the one before; 0: one level", .min = 0,
     .max = 10000},
    {"block_frames", WEFT_KEY_I64, 0, "0", "",
     "latent frames of a block with `frame_lag` and `history`; 0: the model's own", .min = 0,
     .max = 1024},
    {"reasoning_frames", WEFT_KEY_I64, 0, "0", "frames",
     "frames of the video in the first steps (ChronoEdit)", .min = 0, .max = 100000},
    {"reasoning_steps", WEFT_KEY_I64, 0, "0", "steps", "steps with `reasoning_frames`", .min = 0,
     .max = 10000},
    {"stage_steps", WEFT_KEY_STRING, 0, "", "",
     "steps at each size of latents, from the smallest: 10,10,10; they set `steps`"},
    {"first_section_steps", WEFT_KEY_ENUM, 0, "same", "",
     "steps of the first section: as the others, or twice the steps (Helios-Distilled)",
     .choices = first_steps},
    {"eta", WEFT_KEY_F64, 0, "0", "", "noise that the sampler ddim adds in each step", .min = 0,
     .max = 1},
    {"shift", WEFT_KEY_F64, 0, "0", "", "shift of the timestep schedule; 0: the model's own",
     .min = 0, .max = 100},
    {"timesteps", WEFT_KEY_STRING, 0, "", "",
     "timesteps of the steps, from the highest: 999,750,500; they set `steps`"},
    {"sigmas", WEFT_KEY_STRING, 0, "", "",
     "noise levels of the steps, from the highest: 1,0.5,0; they set `steps`"},
    {"decode_timestep", WEFT_KEY_F64, 0, "0", "", "timestep of decoding", .min = 0, .max = 1},
    {"decode_noise_scale", WEFT_KEY_F64, 0, "", "",
     "share of noise in the decoded latents; default: the timestep of decoding", .min = 0,
     .max = 1},
    {"feature_cache", WEFT_KEY_STRING, 0, "off", "",
     "reuse of block outputs between steps: off, conservative, fast, or block:T, teacache:T, "
     "every:N, attention:N"},
    {"true_cfg_scale", WEFT_KEY_F64, 0, "0", "",
     "scale of classifier-free guidance in addition to embedded guidance; up to 1: none", .min = 0,
     .max = 100},
    {"guidance_method", WEFT_KEY_STRING, 0, "", "",
     "how the branches of guidance are combined; default: the model's own"},
    {"zero_init_steps", WEFT_KEY_I64, 0, "", "steps",
     "first steps whose prediction is 0, with the method zero_star; default: the model's own",
     .min = 0, .max = 10000},
    {"guidance_rescale", WEFT_KEY_F64, 0, "0", "",
     "share by which the prediction is rescaled to its deviation without guidance", .min = 0,
     .max = 1},
    {"audio_guidance_scale", WEFT_KEY_F64, 0, "0", "",
     "guidance of the sound; 0 (default): as `guidance_scale`", .min = 0, .max = 100},
    {"control_scale", WEFT_KEY_F64, 0, "1", "", "strength of the control video", .min = 0.001,
     .max = 10},
    {"guidance_scale_2", WEFT_KEY_F64, 0, "0", "",
     "guidance of the second transformer; 0 (default): as `guidance_scale`", .min = 0, .max = 100},
    {"boundary_ratio", WEFT_KEY_F64, 0, "0", "",
     "timestep below which the second transformer is used; 0: the model's own", .min = 0, .max = 1},
    {"guidance_start", WEFT_KEY_F64, 0, "0", "", "share of the steps at which guidance starts",
     .min = 0, .max = 1},
    {"guidance_end", WEFT_KEY_F64, 0, "1", "", "share of the steps at which guidance ends",
     .min = 0, .max = 1},
    {"request_id", WEFT_KEY_STRING, 0, "", "",
     "a repeated request with this id answers with the existing job"},
    {"priority", WEFT_KEY_I64, 0, "0", "", "jobs of higher priority run first", .min = -1000,
     .max = 1000},
    {"deadline", WEFT_KEY_F64, 0, "0", "s", "seconds since 1970; 0 removes the deadline", .min = 0,
     .max = 1e11},
    {"webhook", WEFT_KEY_STRING, 0, "", "", "URL below one of --webhook, called when the job ends"},
    {"n", WEFT_KEY_I64, 0, "1", "", "number of videos", .min = 1, .max = 1},
    {"user", WEFT_KEY_STRING, 0, "", "", "accepted and ignored"},
    {"metadata", WEFT_KEY_TREE, 0, "", "", "accepted and ignored"},
};
const weft_section weft_request_section = {"request", "a request of weft serve", 0, keys,
                                           WEFT_COUNT(keys)};

const weft_key *weft_request_key(const char *name)
{
    for (int i = 0; i < WEFT_COUNT(keys); i++)
        if (!strcmp(keys[i].name, name))
            return &keys[i];
    assert(!"a field of the table");
    return keys;
}
