// Values of the API, as gptoss_local/api and talk/history state them (tests/web/test_types.py).
export type Fold = [start: number, end: number, label: string];
export interface Stats {
  total_duration?: number; prompt_eval_count?: number; eval_count?: number; eval_duration?: number; ttft_s?: number;
  reasoning_s?: number; n_reasoning_frames?: number; done_reason?: string; error?: string;
  joules?: Record<string, number>;
  seconds?: number; is_error?: boolean; folds?: Fold[]; pages?: Page[]; question?: Question;
}
export type Page = [cursor: number, url: string, title: string];
export interface Question {
  about: string; always: string; lasting: ("chat" | "always")[];
  parts: { kind: "code" | "command" | "arguments" | "diff"; text: string }[];
}
export interface ToolGroup {
  name: string; about: string; description: string; is_on: boolean; is_mcp: boolean; problem: string;
  tools: { name: string; description: string; trust: "" | "chat" | "always" }[];
}
export interface Server { name: string; reached: string; values: string[] }
export interface Turn {
  id: number; chat_id: number; parent_id: number | null;
  role: "system" | "user" | "assistant" | "tool";
  content: string; reasoning: string; tool_calls: any[]; tool_name: string; model: string;
  effort: string; state: "streaming" | "done" | "stopped" | "failed"; stats: Stats;
  created_s: number;
}
export type Options = Record<string, number | boolean | string>; // a string: names of tools
export interface Chat {
  id: number; title: string; model: string; effort: string; n_turns: number; created_s: number;
  updated_s: number; leaf_id: number | null; options: Options; preset: string; is_pinned: boolean; folder: string;
}
export interface Hit { chat_id: number; turn_id: number | null; title: string; snippet: string; created_s: number }
export interface Preset { name: string; system: string; effort: string | null; options: Options }
export interface Progress {
  status: string; n_done?: number; n_all?: number; tokens_per_s?: number; n_tokens?: number;
}
export interface Fit {
  name: string; fits: "vram" | "split" | "ram" | "no"; vram_share: number; n_ctx: number;
  tokens_s: number; memory: Memory[]; problem: string; headline: string; download_bytes: number; file_bytes: number; is_special: boolean;
}
export interface Memory { name: string; total: number; model: number; context: number; free: number }
export interface Fits { models: Fit[]; is_new: boolean; suggested: string; advice: string }
export interface Model { name: string; size: number; remote_host?: string; details: { parameter_size: string } }
export interface Loaded { name: string; size: number; size_vram: number; context_length: number }
export interface Job { // without `stop` it is over: stopped, or failed
  what: "load" | "pull"; text: string; share: number | null; stop?: () => void; hint?: string; isError?: boolean;
}
export interface Chip { label: string; text: string } // without a text while its file is read
export interface Draft {
  model: string; effort: string; preset: string; system: string; options: Options;
  is_temporary: boolean;
}
export type Dialog =
  | { kind: "models" | "settings" | "tools" | "help" }
  | { kind: "key"; why: string }
  | { kind: "unlock" }
  | { kind: "compare"; turn: Turn }
  | { kind: "rename" | "move" | "delete"; chat: Chat };
export interface Preview { // of a block of code: the element of its turn, and its place there
  turn: string; n: number; kind: "html" | "svg" | "mermaid"; text: string; language: string; isOpen: boolean;
}
export interface Notice { text: string; hint: string; isError: boolean }
