/* The table of the fields of a request. Ranges that depend on the model or on other fields are
 * checked by video_request.c. */
#include "serve/request_table.h"

#include "serve/video_request.h"

#include <assert.h>
#include <string.h>

#define SIDE WEFT_REQUEST_SIDE

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
     "type in which transformer and text encoders compute: f32, bf16 or auto; default: the "
     "server's"},
    {"vae_precision", WEFT_KEY_STRING, 0, "", "",
     "type in which the VAE computes: f32 or bf16; default: the server's"},
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
