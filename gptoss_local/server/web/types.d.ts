// Values of the API, as gptoss_local/api and talk/history state them (tests/web/test_types.py).
type Fold = [start: number, end: number, label: string];
interface Stats {
  total_duration?: number; prompt_eval_count?: number; eval_count?: number; eval_duration?: number; ttft_s?: number;
  reasoning_s?: number; n_reasoning_frames?: number; done_reason?: string; error?: string;
  joules?: Record<string, number>;
  seconds?: number; is_error?: boolean; folds?: Fold[]; pages?: Page[]; question?: Question;
}
type Page = [cursor: number, url: string, title: string];
interface Question {
  about: string; always: string; lasting: ("chat" | "always")[];
  parts: { kind: "code" | "command" | "arguments" | "diff"; text: string }[];
}
interface ToolGroup {
  name: string; about: string; description: string; is_on: boolean; is_mcp: boolean; problem: string;
  tools: { name: string; description: string; trust: "" | "chat" | "always" }[];
}
interface Server { name: string; reached: string; values: string[] }
interface Turn {
  id: number; chat_id: number; parent_id: number | null;
  role: "system" | "user" | "assistant" | "tool";
  content: string; reasoning: string; tool_calls: any[]; tool_name: string; model: string;
  effort: string; state: "streaming" | "done" | "stopped" | "failed"; stats: Stats;
  created_s: number;
}
type Options = Record<string, number | boolean | string>; // a string: names of tools
interface Chat {
  id: number; title: string; model: string; effort: string; n_turns: number; created_s: number;
  updated_s: number; leaf_id: number | null; options: Options; preset: string; is_pinned: boolean; folder: string;
}
interface Hit { chat_id: number; turn_id: number | null; title: string; snippet: string; created_s: number }
interface Preset { name: string; system: string; effort: string | null; options: Options }
interface Progress {
  status: string; n_done?: number; n_all?: number; tokens_per_s?: number; n_tokens?: number;
}
interface Fit {
  name: string; fits: "vram" | "split" | "ram" | "no"; vram_share: number; n_ctx: number;
  tokens_s: number; memory: Memory[]; problem: string; headline: string; download_bytes: number; file_bytes: number; is_special: boolean;
}
interface Memory { name: string; total: number; model: number; context: number; free: number }
interface Fits { models: Fit[]; is_new: boolean; suggested: string; advice: string }
interface Model { name: string; size: number; remote_host?: string; details: { parameter_size: string } }
interface Loaded { name: string; size: number; size_vram: number; context_length: number }
interface Job { // without `stop` it is over: stopped, or failed
  what: "load" | "pull"; text: string; share: number | null; stop?: () => void; hint?: string; isError?: boolean;
}
interface Chip { label: string; text: string } // without a text while its file is read
interface Draft {
  model: string; effort: string; preset: string; system: string; options: Options;
  is_temporary: boolean;
}
type Dialog =
  | { kind: "models" | "settings" | "tools" | "help" }
  | { kind: "key"; why: string }
  | { kind: "unlock" }
  | { kind: "compare"; turn: Turn }
  | { kind: "title" | "folder" | "delete"; chat: Chat };
interface Preview { // of a block of code: the element of its turn, and its place there
  turn: string; n: number; kind: "html" | "svg" | "mermaid"; text: string; language: string; isOpen: boolean;
}
interface Notice { text: string; hint: string; isError: boolean }
