"""Keys of Hugging Face's config.json that change neither what is counted of a model nor how long it takes.

Every other key of a file is read, refused for what it holds, or named in a doubt: a key that nobody here knows may well
change both.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

CONFIG_FILE = "config.json"
# what a file is and how it was written
_OF_FILES = """architectures model_type torch_dtype dtype transformers_version _name_or_path name_or_path auto_map
    license model_name language prefix tokenizer_class torchscript unsloth_version unsloth_fixed
    _attn_implementation_autoset _commit_hash id2label label2id problem_type task_specific_params finetuning_task
    bad_words_ids"""
# training, and tokens with a meaning
_OF_TRAINING = """initializer_range attention_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob
    embd_pdrop emb_pdrop resid_pdrop attn_pdrop dropout classifier_dropout router_aux_loss_coef router_jitter_noise
    output_router_logits output_attentions output_hidden_states return_dict use_return_dict gradient_checkpointing
    bos_token_id eos_token_id pad_token_id unk_token_id sep_token_id decoder_start_token_id chunk_size_feed_forward
    is_decoder is_encoder_decoder add_cross_attention cross_attention_hidden_size tie_encoder_decoder pruned_heads
    pretraining_tp use_cache attn_implementation _attn_implementation experts_implementation
    _experts_implementation"""
# read elsewhere, or checked for what they hold; and positions, whose rotation takes the same time however it is scaled
_READ = """quantization_config quantization compression_config num_experts_per_tok experts_per_token layer_types
    max_position_embeddings original_max_position_embeddings max_window_layers initial_context_length model_max_length
    seq_length n_positions rope_parameters rope_scaling rope_interleaved partial_rotary_factor rotary_emb_base
    swiglu_alpha use_qk_norm max_sequence_length"""
# of what sees or hears, and how that stands among the text
_OF_ENCODERS = """mm_tokens_per_image spatial_merge_size vision_feature_layer vision_feature_select_strategy
    projector_hidden_act projector_hidden_size multimodal_projector_bias mlp_connector_layers ignore_index
    vision_soft_tokens_per_image use_unified_vision_chunk video_placeholder image_seq_length image_grid_pinpoints
    img_token_compression_config process_image_mode"""
TEXT_KEYS = ("text_config", "llm_config", "language_config")
ENCODERS = ("vision_config", "audio_config", "speech_config", "vit_config")
OF_THE_WHOLE = ("model_type", "tie_word_embeddings", "quantization_config", "compression_config", "quantization")
# how answers are sampled
_OF_ANSWERS = """do_sample early_stopping length_penalty max_length min_length no_repeat_ngram_size num_beam_groups
    num_beams num_return_sequences repetition_penalty diversity_penalty temperature top_k top_p typical_p
    encoder_no_repeat_ngram_size exponential_decay_length_penalty suppress_tokens begin_suppress_tokens
    forced_bos_token_id forced_eos_token_id remove_invalid_values tf_legacy_loss use_bfloat16"""
WITHOUT_EFFECT = frozenset(f"{_OF_FILES} {_OF_TRAINING} {_OF_ANSWERS} {_OF_ENCODERS} {_READ}".split())
MARKERS = ("_token_id", "_token_ids", "_token_index")
"""Endings of keys of tokens with a meaning."""
OF_LANGUAGE = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""Endings of classes that write text."""


def unread(config: Mapping[str, Any], read: Collection[str]) -> tuple[str, ...]:
    """The keys that are neither read nor known to be without effect, in a sentence. Null and false say of no use."""
    keys = [
        key
        for key, value in config.items()
        if not (key in read or key in WITHOUT_EFFECT or key.endswith(MARKERS) or value in (None, False))
    ]
    return (f"{CONFIG_FILE}: {', '.join(keys)}: not read, whatever that changes",) if keys else ()


def language_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The part of a file that says what writes the text, and what of a model that also sees or hears is not counted."""
    name = next((key for key in TEXT_KEYS if isinstance(config.get(key), Mapping)), None)
    if name is None:
        return config, ()
    text = config[name]
    whole = {key: config[key] for key in OF_THE_WHOLE if config.get(key) is not None and text.get(key) is None}
    encoders = [key for key, table in config.items() if isinstance(table, Mapping) and key in ENCODERS]
    doubts = []
    if encoders:
        doubts.append(f"{CONFIG_FILE}: {', '.join(encoders)}: encoders are counted neither in memory nor in time")
    stated = config.get("architectures") or []
    classes = stated if isinstance(stated, list) else [stated]
    if others := [each for each in classes if not str(each).endswith(OF_LANGUAGE)]:
        doubts.append(
            f"{CONFIG_FILE}: {', '.join(map(str, others))} is not known to write text, and is counted as if it did"
        )
    beside = {key: value for key, value in config.items() if value != text.get(key)}
    return {**text, **whole}, (*doubts, *unread(beside, (name, *encoders, *OF_THE_WHOLE)))
