# Sidekiq with its default settings: a worker process with two queues, and what an application asks of it.

host, port, what = ARGV
ENV["FRAMEWORK_ADDRESS"] = "#{host}:#{port}"

require "json"
require "logger"
require "sidekiq/api"
require_relative "sidekiq_worker"

Sidekiq.logger = Logger.new($stderr)

def until_there(what)
  ending = Time.now + 60
  loop do
    found = yield
    return found if found
    raise "gave up waiting for #{what}" if Time.now > ending

    sleep 0.05
  end
end

def started
  command = ["sidekiq", "-r", "#{__dir__}/sidekiq_worker.rb", "-q", "critical,2", "-q", "default", "-c", "3", "-t", "5"]
  pid = spawn(*command, out: :err)
  yield
ensure
  Process.kill("TERM", pid)
  Process.wait(pid)
end

def work
  started do
    20.times { |number| Add.perform_async(number, 1000) }
    Sidekiq::Client.push_bulk("class" => Add, "args" => [[1, 2], [3, 4]])
    5.times { |number| Urgent.perform_async(number) }
    Add.perform_in(1, 1, 1)
    far = Add.perform_in(3600, 9, 9)
    SecondTime.perform_async
    Fail.perform_async
    done = until_there("all jobs") do
      found = Sidekiq.redis { |client| client.lrange("done", 0, -1) }
      found.map(&:to_i).sort if found.size >= 29
    end
    until_there("the process") { Sidekiq::ProcessSet.new.any? }
    {
      done: done,
      scheduled: Sidekiq::ScheduledSet.new.map { |job| job.jid == far },
      deleted: Sidekiq::ScheduledSet.new.map(&:delete),
      queues: Sidekiq::Queue.all.map { |queue| [queue.name, queue.size] },
      cleared: Sidekiq::Queue.new("critical").clear && Sidekiq::Queue.all.map(&:name),
      dead: Sidekiq::DeadSet.new.size,
      processes: Sidekiq::ProcessSet.new.map { |process| process["queues"].sort },
      processed: until_there("the statistics") { Sidekiq::Stats.new.processed >= 30 },
      failed: Sidekiq::Stats.new.failed,
      retries: Sidekiq::RetrySet.new.size
    }
  end
end

def probe
  Urgent.perform_async(1)
  Sidekiq::Queue.new("critical").clear
end

puts JSON.generate(what == "work" ? work : probe)
